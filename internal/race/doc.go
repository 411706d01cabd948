// Package race tells the race detector what it cannot see: order that is made by
// words in mapped memory, and accesses by assembly. In builds without -race every
// function is empty and inlined away.
//
//	race.Release(ring)                  // before the store that publishes
//	mmio.StoreRelease32(tail, t)
//
//	t := mmio.LoadAcquire32(tail)
//	race.Acquire(ring)                  // after the load that saw it
//
// Addresses are names, so memory outside the Go heap works too: both sides must
// give the same one, which in a process that maps a segment twice means the same
// mapping. Accesses to memory outside the Go heap itself are never checked.
package race
