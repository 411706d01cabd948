// Package mmio has the stores, copies and fences that a device driver needs and
// Go does not have: a store of an exact width, a copy whose stores are
// neither merged nor repeated, fences between CPU and device, and a
// release store that is a plain MOV on amd64.
//
// A post has the steps of the hardware's manual:
//
//	mmio.StoreRecord32(dbrec, be32)         // WQE bytes before the doorbell record
//	mmio.ToDevice()                         // record before the register
//	mmio.Copy64(bf, wqe)                    // BlueFlame, or Doorbell64(uar, first8)
//	mmio.FlushWC()                          // out of the write-combining buffer
//
// # Which fence
//
//	            amd64     arm64       orders
//	ToDevice    SFENCE    DMB OSHST   stores before it, to memory or device, before stores after it
//	FlushWC     SFENCE    DSB ST      the same, and empties write-combining buffers
//	FromDevice  LFENCE    DMB OSHLD   loads before it, of memory a device writes, before accesses after it
//	Pause       PAUSE     YIELD       nothing; for polling loops
//	PrefetchW   PREFETCHW PRFM PSTL1  nothing; fetches a line that will be stored to; PrefetchWLines several
//
// StoreRecord32 is a release store with a ToDevice before it on arm64, where it is
// necessary. amd64 preserves the order of stores to normal memory; it needs SFENCE
// because UAR pages are mapped write-combining. Between goroutines or processes
// (without a device) use StoreRelease and LoadAcquire, and no fence.
//
// # A store, then a load
//
// If each of two sides stores to a word of its own and then loads the word of the other side (a guard and a key, a ring and
// a word for "asleep"), at least one of them must load the new value. For that, each side must execute its load after its
// store. A release store does not ensure this order: on amd64 the load may overtake
// it. sync/atomic does: its store is an XCHG on amd64, and STLR on
// arm64, which a later LDAR, its load, does not overtake. So both accesses of both
// sides must use sync/atomic. Plain accesses after that load are executed after it on both architectures.
//
// # Two builds
//
// amd64 and arm64 have assembly. Other architectures, and the build tag purego,
// have a portable twin by sync/atomic. It is correct between CPUs, and so for the software HCA,
// but its fences are not sufficient for a real device.
//
// Functions are not inlined in the assembly build, except StoreRelease, StoreRecord and
// LoadAcquire; a call costs about 1.2 ns. None allocates or blocks, and none faults if
// the pointers are valid. Pointers must be aligned to 8 bytes (4 for the 32-bit
// forms), and valid during the call. Any goroutine may call them.
package mmio
