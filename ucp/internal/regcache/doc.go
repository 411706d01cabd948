// Package regcache keeps memory of the caller registered between the operations that use
// it. Registering takes microseconds and grows with the length; applications send from the
// same buffers again and again.
//
//	c := regcache.New(registrar, cfg)
//	e, err := c.Get(buf, uct.AccessLocalWrite) // e.Mem covers buf
//	...                                        // the operation
//	c.Put(e)                                   // when no transport has buf any more
//
// # Whose memory is it
//
// Nothing can be asked of an address: a slice may lie on the Go heap, in a mapping or in
// memory that a transport allocated. All are treated as what is most delicate, the heap.
//
//   - The [Registrar] keeps what it registers reachable and unmoved, as [uct.Registrar]
//     promises. Memory domains pin what devices or peers reach by its address with a
//     runtime.Pinner, and unpin it when it is deregistered, in this order. The cache pins
//     nothing a second time.
//   - An entry holds the slice until deregistering has succeeded. So as long as an address
//     is in the index, the memory there is the one that was registered: it cannot be
//     collected, and no other object can get its address.
//   - Therefore an idle entry keeps its whole object alive, also what is beyond the slice.
//     [Config] bounds how much idle entries hold, by default 64 MiB in 256 entries for each
//     cache, and [Cache.Purge] lets go of all of it.
//
// Other memory does not obey the collector: before a mapping is unmapped or changed, and
// before memory that a transport allocated is freed, [Cache.Invalidate] must have returned
// nil for it. The heap needs no invalidation.
//
// # What is found
//
// An entry serves every range within its own, exactly as long as it is: ranges are not
// rounded to pages, as the rest of a page may belong to another object, and a key must not
// open that to a peer. For the same reason it serves only those who ask for the very rights
// that it has. A buffer that is sent and received into is registered twice; who wants it
// once asks for the rights of both.
//
// A new entry replaces those of the same rights within it. So none of the index contains
// another one: sorted by where they start they are also sorted by where they end, and of
// all that start before a range only the last one can cover it. One binary search finds it.
//
// # Goroutines
//
// A cache belongs to one worker, as everything on its data path, and nothing is locked; package
// ucp has one for each memory domain that a worker registers with. The price is that two
// workers that send the same buffer register it twice, that the bounds hold for each cache,
// and that memory is to be invalidated with each worker that used it.
//
// # Costs
//
// Get of what is there and its Put allocate nothing and take a binary search. Other calls
// register and deregister: system calls or messages to a device, and, while a peer is in the
// middle of an access that its key permitted, a wait of up to ucs.RevokeLimit for each entry
// (see uct.Mem.Close).
package regcache
