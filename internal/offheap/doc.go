// Package offheap allocates memory that devices or other processes access: anonymous
// private mappings, which the garbage collector neither scans nor counts.
//
// With the race detector, which does not check mappings, blocks are on the Go heap instead, page aligned and
// referenced by their Block.
//
// With -tags invariants the last freed mappings remain in the address space without
// access rights, so that a late access by a device or through an old slice faults at once;
// and freeing a block twice panics with the stack of the first Free.
package offheap
