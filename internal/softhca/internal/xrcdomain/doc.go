// Package xrcdomain implements the directory of an XRC domain that processes share.
//
// A domain belongs to an inode: the processes of one user on one host that open the inode
// discover each other and map the same segment, the directory.
//
//	joining, under flock of the inode
//	  any member listens?  -- yes -->  get the directory from it
//	                       -- no  -->  create one
//	  reserve a free place: the lock of its byte, and its abstract socket
//
//	directory   members      their GIDs, by place
//	            SRQ numbers  the member with the SRQ
//	            target QPs   their initiator, and the members that refer to them
//
// # Liveness
//
// A member has a lock of the open file description of the directory (F_OFD_SETLK of
// fcntl(2)) on the byte of its place. The kernel releases it when the process exits or is
// killed, so no cleanup is needed: readers ignore the entries of a dead member, and the member
// that gets its place or needs the room clears them. The kernel frees the segment with the last
// process that maps it.
//
// # Changes
//
// Members change the directory under another such lock, one at a time. Each entry has a
// word that is stored last when the entry is created and cleared first when it is removed, so a
// member that is killed during a change leaves no partial entry. Reads, and the release of an SRQ
// number, need no lock.
//
// A member that changes an entry that others must check calls them (Call), by a connection to their
// socket.
//
// A member that is stopped during a change, which takes some microseconds, blocks the
// changes of all others: each fails with ucs.ErrTimedOut after 5 s, as do those of
// other goroutines of the stopped member that wait for it. Messages are not affected.
//
// # Trust
//
// Both sides of a socket reject other users. A process of the same user
// can write anything to the directory: readers check the range of values, and their loops are
// bounded. So such a process can misdirect or stop messages of the domain, stop its targets, connect
// them to itself or extend their access rights, and block changes.
package xrcdomain
