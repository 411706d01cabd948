// Package memfd has shared memory in anonymous memory files.
//
// A Segment is an anonymous memory file of fixed length with one mapping. Its
// creator sends the descriptor to other processes, which adopt it:
//
//	creator                                      adopter
//	Create: memfd_create, set length,
//	        map, seal                 --FD-->    Adopt: check type, seals and
//	                                             length, map, close descriptor
//
// What the seals prevent. F_SEAL_SHRINK and F_SEAL_GROW fix the length, so no
// process can truncate a file that another one has mapped, which would raise SIGBUS
// there. F_SEAL_SEAL prevents further seals. A segment of
// PeersRead also has F_SEAL_FUTURE_WRITE, applied after the creator has mapped it:
// from then on no process can get a writable mapping, not even by opening
// the file again through /proc, which the owner of the file is always allowed.
//
// What they do not prevent. Pages are allocated at the first access. If the machine or the
// memory cgroup has no memory left, the out-of-memory killer ends a process; a kernel without
// memory overcommit (vm.overcommit_memory 2) may raise SIGBUS instead. A process with
// a writable descriptor may punch holes, which has the effect of writing zeros.
//
// CreateHuge reserves all its pages in the machine's pool of huge pages at
// once, because an access without a free page raises SIGBUS. For the same reason Adopt
// accepts such files only with HugePages.
//
// Segments are excluded from core dumps: a dump would access, and so allocate,
// every page of a sparse segment.
package memfd
