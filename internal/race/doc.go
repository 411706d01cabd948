// Package race informs the race detector of synchronization by
// words in mapped memory, and of accesses by assembly, which it does not detect. In builds without -race every
// function is empty and inlined.
//
//	race.Release(ring)                  // before the store that publishes
//	mmio.StoreRelease32(tail, t)
//
//	t := mmio.LoadAcquire32(tail)
//	race.Acquire(ring)                  // after the load that saw it
//
// An address only identifies a synchronization, so it may be outside the Go heap. Both sides must
// pass the same address: if a process maps a segment twice, an address in the same
// mapping. The detector does not check accesses to memory outside the Go heap.
//
// ReleaseToPeers and AcquireFromPeers are for messages in memory that is shared with other processes: a process that replies to a
// message orders all its earlier accesses, whatever the path of the reply.
package race
