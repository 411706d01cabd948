// Package mmio has the stores, copies and fences that a device driver needs and
// that Go does not offer: one store of an exact width, one copy whose stores are
// neither merged nor repeated, the orders of the CPU towards a device, and a
// release store that costs a plain MOV on amd64.
//
// A post reads like the manual of the hardware:
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
//	Pause       PAUSE     YIELD       nothing; tells the core that this is a polling loop
//	PrefetchW   PREFETCHW PRFM PSTL1  nothing; fetches a line that will be stored to; PrefetchWLines several
//
// StoreRecord32 is a release store with a ToDevice before it where that does something:
// on arm64. amd64 keeps the order of stores to normal memory by itself; SFENCE matters
// because UAR pages are mapped write-combining. Between goroutines or processes
// (no device) use StoreRelease and LoadAcquire, no fence.
//
// # A store, then a load
//
// Who announces something in one word and then looks at another, as both sides do that
// must not miss each other (a guard and a key, a ring and a word that says "asleep"),
// needs the two in that order. A release store does not give it: on amd64 the load that
// follows overtakes it. sync/atomic does: its store is an XCHG on amd64, and STLR on
// arm64, which no later LDAR, its load, overtakes; so both accesses are its, on both
// sides. Plain accesses behind that load come after it on both machines.
//
// # Two builds
//
// amd64 and arm64 have assembly. Other architectures, and the build tag purego,
// have a twin on sync/atomic: right between CPUs, so right for the software HCA,
// but no substitute for the fences of a real device.
//
// Functions are not inlined in the assembly build, except StoreRelease, StoreRecord and
// LoadAcquire; a call costs about 1.2 ns. None allocates, blocks or faults when
// the pointers are valid. Pointers must be aligned to 8 bytes (4 for the 32-bit
// forms), and stay valid during the call; any goroutine may call.
package mmio
