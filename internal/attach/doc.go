// Package attach lets processes on one host find each other and share memory.
//
// A Port listens on an abstract unix socket whose name is made of the service, the
// user and the GID, or on a socket file in Config.SocketDir. A link goes one way: the
// dialer will reach the acceptor's memory.
//
//	dialer                                              acceptor
//	connect ------------------------------------------> accept
//	uid allowed? (SO_PEERCRED)                          uid allowed? (SO_PEERCRED)
//	HELLO  layout, GIDs, lengths
//	  link segment, arena, pipe     ------------------> map link and the arena's
//	                                                    first bytes, OnLink
//	map table and arena <------------------------------ WELCOME  layout, GIDs, lengths
//	                                                      table, arena, pipe
//	MOVE, if there is an older connection of the two processes: over that one
//	close <------------------------------------ MOVED over this one, close
//
// The acceptor answers REFUSE with a reason instead, or just hangs up on what is
// no handshake. OnLink has returned before WELCOME leaves, so an acceptor knows a
// link before the dialer can use it.
//
// # Liveness
//
// Links of the same two processes share a connection, whichever process dialed it and whatever port the links
// belong to: it has messages about each of them (linkmsg.go), and one goroutine that reads them. Its hang-up ends
// all its links. The kernel closes the sockets
// of a process that exits or is killed, after it has taken down its memory map, and
// the other end sees the hang-up at once. A stopped process stays up. docs/design/0019 has the reasons.
//
// That a link is closed also says that this side touches the other's memory no more: neither side sends that
// before. An acceptor that goes away hangs up its half (Link.HangUp), and has
// the link until the dialer has closed.
//
// # Links within a process
//
// Ports of one process that have Config.Local make links by calls instead of messages: no socket, no descriptors but those of
// the pipes, and one mapping for both ends of many links. All else is as above.
//
// # Who is trusted with what
//
// Processes of other users are turned away before they can say anything, on both
// sides: abstract names have no owner, so anybody may sit on one, and a directory may
// be somebody else's. A process of an
// allowed user can:
//   - overwrite the arena and the link segment at any time, as remote writes do;
//   - refuse service: use up MaxLinks, sit on a GID's name, or read from the pipe, so that the
//     owner misses a Wake of another peer and sleeps until its next look.
//
// It cannot:
//   - write to the table, or get a writable mapping of it (from Linux 5.1 on);
//   - make a Wake, or the owner of the pipe, block: see Waker;
//   - resize a segment, and so cause SIGBUS: segments without seals are refused;
//   - keep handshake slots for longer than HandshakeTimeout, leave descriptors
//     behind, or make the port run out of memory with what it sends;
//   - end or move a link of another process: messages apply to links of the process that the kernel reports at
//     the other end of the connection.
//
// A peer's pipe takes a descriptor of this process, and a peer's process one, its connection, or two if both
// processes have dialed at once. A link takes none: segments are mapped and their descriptors closed. Where the kernel does
// not report the PID of the peer to both sides, each link has its own connection.
//
// A process of the same user could do far more with ptrace. For users in AllowUIDs
// the first list is what they are given.
package attach
