// Package testenv is for tests of all layers: progress instead of sleeps, checks for allocations, skips with reasons,
// and a TestMain that fails a package that leaks goroutines, file descriptors, shared mappings or off-heap blocks.
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
// Only tests and the conformance suites import it.
package testenv
