// Package memfd owns shared memory that lives in no file system.
//
// A Segment is an anonymous memory file of fixed length with one mapping. Its
// creator hands the descriptor to other processes, which adopt it:
//
//	creator                                      adopter
//	Create: memfd_create, set length,
//	        map, seal                 --FD-->    Adopt: check kind, seals and
//	                                             length, map, close descriptor
//
// What the seals give. F_SEAL_SHRINK and F_SEAL_GROW fix the length, so no
// process can cut the file under somebody's mapping, which would raise SIGBUS
// there. F_SEAL_SEAL keeps anybody from adding seals later. A segment made with
// PeersRead also has F_SEAL_FUTURE_WRITE, applied when the creator's own mapping
// exists: from then on nobody can get a writable mapping, not even by opening
// the file again through /proc, which the owner of the file is always allowed.
//
// What they do not give. Pages come at first touch. When the machine or the
// memory cgroup has none left, the out-of-memory killer acts; a kernel without
// memory overcommit (vm.overcommit_memory 2) may raise SIGBUS instead. A holder
// of a writable descriptor may punch holes, which reads as zeros: no worse than
// writing zeros.
//
// CreateHuge takes pages of the machine's pool of huge pages and reserves them at
// once, since one that is missing at a touch is a SIGBUS. For the same reason Adopt
// takes such files only with HugePages.
//
// Segments are left out of core dumps: a dump would touch, and so allocate,
// every page of a sparse one.
package memfd
