// Package offheap owns memory that devices or other processes touch: anonymous
// private mappings that the garbage collector neither moves, scans nor counts.
//
// Under the race detector blocks are on the Go heap instead, page aligned and
// kept alive by their Block, because the detector is blind to mappings.
//
// With -tags invariants the last freed mappings stay in the address space without
// access rights, so that a late access by a device or a stale slice faults at once,
// and freeing a block twice panics with the stack of the first Free.
package offheap
