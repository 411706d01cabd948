// Package testenv is what tests of every layer share: driving progress instead
// of sleeping, assertions about allocations, skips that say why, and a TestMain that
// fails a package which leaks goroutines, file descriptors, shared mappings or off-heap
// blocks.
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
// Only tests and the conformance suites import it.
package testenv
