// Package guard protects memory that several processes access without its owner. A visitor stores and
// loads there by itself; the owner can nevertheless withdraw the memory, and knows when no access is in
// progress any more.
//
// # The two sides
//
// The owner publishes a table of keys, which visitors map and cannot write. Each visitor has a guard
// word, which the owner maps too. An access is a visit:
//
//	visitor                              owner
//	1 guard = number, region             a clear the key in the table
//	2 full barrier                       b full barrier
//	3 load the key: gone? leave          c load the guards; those that name the region are visits
//	4 load and store                     d wait until each of them has another value, or its peer is gone
//	5 guard = next number, no region     e free the memory, then the key's place in the table
//
// # Why nothing is accessed after it is freed
//
// Consider step 3 of a visit and step a. If 3 sees that the key is gone, the visit accesses nothing. If 3
// sees the key, then 1 is visible to c: either of the two barriers orders its own store before its own
// load, so that of 3 and c at least one sees the store of the other side. So c finds the visit, and d
// waits for it. Step 5 is a release store that follows all accesses, so e follows them. A peer that is
// gone has no thread left in user mode, nor in a system call that copies.
//
// One barrier is enough if it is on both CPUs. Word.Enter executes the one of the visitor (fenced). Where
// the owner can call membarrier(2) for all visitors, that call is b and 2 at once, and a visit needs
// no barrier of its own. Then a visit in progress has stored its guard when the call returns.
//
// What a visitor has looked up in an earlier visit it may use again if it loads, in step 3, something that
// the owner changes in step a: the key itself, if no key is ever used twice, or a generation of the table.
//
// # Why the owner waits for nobody else
//
// The guard names the region and numbers the visit. So d waits neither for visits to other regions nor for
// later ones, which have seen that the key is gone. Numbers have 34 bits; if one came again while the owner
// waits, the owner would wait for that visit too. The owner does not trust guards: a peer that writes
// nonsense makes the owner wait, up to the limit that the caller gives, or keeps memory in quarantine,
// until it is gone.
//
// # Quarantine
//
// Owner.Free does not wait: memory with visits in progress stays in quarantine until these are over, and
// Reclaim frees it. A guard names one region, so there are at most as many regions in quarantine as guards.
//
// # What users do themselves
//
// Table entries differ beside the Extent: packages sm and self have keys of 48 random bits, which never
// come again, so a cached right holds while the key is there; the software HCA has 32-bit keys as verbs
// has, which come again, and rights that depend on a QP, so it has a generation. In package self all
// regions are one, as its visits are short. sm and self leave the barrier to the owner where the kernel
// can; a QP has so much to do for each work request that its own barrier does not matter.
//
// The test of this package executes every interleaving of an owner that withdraws a region and uses its
// place again, and of a visitor with two visits, with and without a store buffer between the visitor and
// the guard that the owner reads; and it shows that each step is necessary.
package guard
