// Package regcache keeps memory of the caller registered between the operations that use
// it. Registering takes microseconds and grows with the length; applications send from the
// same buffers again and again.
//
//	c := regcache.New(registrar, cfg)
//	e, err := c.Get(buf, uct.AccessLocalWrite) // e.Mem covers buf
//	...                                        // the operation
//	c.Put(e)                                   // when no transport accesses buf any more
//
// # Ownership of memory
//
// The cache cannot find out from an address whether a slice is on the Go heap, in a mapping or in
// memory that a transport allocated. It handles all memory like the heap, which needs most care.
//
//   - The [Registrar] must keep registered memory reachable and unmoved, as [uct.Registrar]
//     requires. Memory domains pin memory that devices or peers access by address with a
//     runtime.Pinner. They deregister it before they unpin it. The cache pins nothing again.
//   - An entry refers to the slice until deregistering has succeeded. So an address in the index
//     always means the memory that was registered: the collector cannot free it, and no other
//     object can get its address.
//   - Therefore an idle entry keeps its whole object alive, also the bytes outside the slice.
//     [Config] limits idle entries, by default to 64 MiB in 256 entries for each
//     cache, and [Cache.Purge] deregisters all of them.
//
// The collector does not manage other memory. Before the caller unmaps or changes a mapping, or frees
// memory of a transport, [Cache.Invalidate] must have returned nil for it. The heap needs
// no invalidation.
//
// # Lookup
//
// An entry serves every range within its own range. Ranges are not rounded to pages: the rest of a page may
// belong to another object, and a key must not give a peer access to that. For the same reason an entry
// serves only operations that need exactly its access. A buffer that is sent and received into is
// registered twice; a caller that wants one registration asks for both rights.
//
// A new entry replaces entries with the same access within its range. So no entry of an index contains
// another one: sorted by start they are also sorted by end, and of all entries that start before a range
// only the last one can cover it. One binary search finds it.
//
// # Goroutines
//
// A cache belongs to one worker, like everything on the data path, and has no locks. Package
// ucp has one for each memory domain that a worker registers with. So two workers that send the same
// buffer register it twice, the limits are for each cache, and memory must be invalidated with each
// worker that used it.
//
// # Costs
//
// A Get that finds its entry, and its Put, allocate nothing and take a binary search. Other calls
// register and deregister: system calls or messages to a device. While a peer is in the
// middle of an access with the key, deregistering waits up to ucs.RevokeLimit for each entry
// (see uct.Mem.Close).
package regcache
