// Package attach connects processes of one host, which then share memory.
//
// A Port listens on an abstract unix socket, whose name consists of the service, the
// user and the GID, or on a socket file in Config.SocketDir. A link has one direction: the
// dialer accesses the acceptor's memory.
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
// To reject a dialer, the acceptor replies with REFUSE and a reason. If the message is not a handshake, it closes the
// connection. The acceptor sends WELCOME after OnLink has returned, so it has the link before the dialer can use it.
//
// # Liveness
//
// Links between the same two processes share one connection, whichever process has dialed it and to whichever ports
// the links belong. The connection carries messages about each link (linkmsg.go), which one goroutine reads. When the
// connection is closed, all its links go down. When a process exits or is killed, the kernel first removes its memory
// mappings and then closes its sockets, which the other end detects at once. Links of a stopped process remain up.
// docs/design/0019 has the reasons.
//
// A side sends that it has closed a link, or closes the connection, only after its last access to the memory of
// the other side. An acceptor that closes sends LEFT (Link.HangUp), and its end of the link remains until the dialer
// has closed.
//
// # Links within a process
//
// Ports of one process with Config.Local make links by calls instead of messages: without a socket, with no descriptors but
// those of the pipes, and with one mapping for both ends of many links. Everything else is as above.
//
// # What an allowed user can do
//
// Both sides reject a process of another user before they read anything from it. The check is necessary on both
// sides, because any process can listen on an abstract name, and a directory may belong to another user. A process of
// an allowed user can:
//   - overwrite the arena and the link segment at any time, as remote writes do;
//   - deny service: use up MaxLinks, listen on the name of a GID, or read from the pipe, so that the
//     owner misses a Wake of another peer and sleeps until its next poll.
//
// It cannot:
//   - write to the table, or get a writable mapping of it (since Linux 5.1);
//   - make a Wake, or the owner of the pipe, block: see Waker;
//   - resize a segment, and so cause SIGBUS: segments without seals are rejected;
//   - occupy handshake slots for longer than HandshakeTimeout, leak descriptors into this process, or exhaust the
//     memory of the port by messages;
//   - end or move a link of another process: messages apply to links of the process that the kernel reports at
//     the other end of the connection.
//
// This process has one descriptor for each pipe of a peer and one for each peer process, its connection, or two if both
// processes have dialed at the same time. A link has none: segments are mapped and their descriptors closed. If the kernel
// does not report the PID of the peer to both sides, each link has its own connection.
//
// A process of the same user could do far more with ptrace. A user in AllowUIDs can do what the first list says.
package attach
