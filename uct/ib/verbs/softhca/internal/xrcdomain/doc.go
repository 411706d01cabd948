// Package xrcdomain is the directory of an XRC domain that processes share.
//
// A domain belongs to an inode: the processes of one user that open it, on one host,
// find each other and map one segment, the directory.
//
//	joining, under flock of the inode
//	  any member listens?  -- yes -->  take the directory from it
//	                       -- no  -->  make one
//	  take a free place: the lock of its byte, and its abstract socket
//
//	directory   members      their GIDs, by place
//	            SRQ numbers  which member has the SRQ
//	            target QPs   which initiator they serve, which members refer to them
//
// # Liveness
//
// A member holds a lock of the open file description of the directory (F_OFD_SETLK of
// fcntl(2)) on the byte of its place. The kernel drops it when the process exits or is
// killed, so there is nothing to find afterwards: what a dead member had is passed over
// by those who look, and cleared by the member that takes its place or needs the room. The
// segment goes with the last process that has it.
//
// # Changes
//
// Members change the directory under another such lock, one at a time; each entry has a
// word that is stored last when it appears and cleared first when it goes, so a member
// that is killed in the middle leaves no half of one. Reading takes no lock, and neither
// does giving an SRQ number back.
//
// Who changes what others are to look at calls them (Call): a connection to their socket does.
//
// A member that is stopped in the middle of a change, which takes some microseconds, holds up
// the changes of all others: each ends with ucs.ErrTimedOut after 5 s, and so do those of
// other goroutines of that member which wait behind it. Messages are not held up.
//
// # Trust
//
// Other users are turned away on both sides of the sockets. A process of the same user
// can write anything to the directory: what is read is checked for range, and loops end. So it
// can have messages of the domain go to the wrong member or to none, stop its targets, connect
// them to itself or let them grant what their owners did not, and hold up changes.
package xrcdomain
