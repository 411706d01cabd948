// Package guard revokes memory that other processes, the visitors, access by loads and stores. The owner of the
// memory can revoke it, and detects when no access is in progress.
//
// # The two sides
//
// The owner publishes a table of keys, which visitors map read-only. Each visitor has a guard
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
// Consider step 3 of a visit and step a. If 3 loads a cleared key, the visit accesses nothing. Each of the two
// barriers orders the store of its side before the load of its side, so at least one of 3 and c loads the value
// that the other side has stored. Therefore, if 3 loads the key, c finds the visit, and d
// waits for it. Step 5 is a release store that follows all accesses, so e follows them. A peer that is
// gone has no thread in user mode or in a system call that copies.
//
// One barrier is enough if it is on both CPUs. Word.Enter executes the barrier of the visitor (fenced). If
// the owner can call membarrier(2) for all visitors, that call is both b and 2, and a visit needs
// no barrier of its own: a visit in progress has stored its guard when the call returns.
//
// A visitor may use the result of a lookup in an earlier visit again if it loads, in step 3, a value that
// the owner changes in step a: the key itself, if no key is ever used twice, or a generation of the table.
//
// # Which visits the owner waits for
//
// The guard contains the region and the number of the visit. So d waits neither for visits to other regions nor for
// later visits, which find the key cleared. Numbers have 34 bits; if a number occurred again while the owner
// waits, the owner would also wait for that visit. The owner does not trust guards: a peer that writes
// invalid values makes the owner wait, up to the limit of the caller, or memory remains in quarantine
// until the peer is gone.
//
// # Quarantine
//
// Owner.Free does not wait: memory with visits in progress is in quarantine until these have ended, and
// Reclaim frees it. A guard contains one region, so there are at most as many regions in quarantine as guards.
//
// # What differs between users of this package
//
// Table entries contain more than the Extent. Packages sm and self have keys of 48 random bits, which are
// never used again, so a cached right is valid while the key is in the table. The software HCA has 32-bit keys as in
// verbs, which are used again, and rights that depend on a QP, so it has a generation. In package self all
// regions have one guard value, because its visits are short. In sm and self the owner executes the barrier for the
// visitors if the kernel supports that; for a QP its own barrier is a small part of the cost of a work request.
//
// The test of this package executes every interleaving of an owner that revokes a region and uses its
// place again, and of a visitor with two visits, with and without a store buffer between the visitor and
// the guard that the owner reads; and it shows that each step is necessary.
package guard
