// Package tcp is the transport over TCP sockets, for hosts without RDMA devices: active messages,
// put, get and atomics.
//
// An Iface listens on the addresses of one network device. It has one connection to each peer
// iface, whichever side opened it; all EPs to that peer share it. Nothing is sent before the first
// operation. An option opens further connections to a peer, called rails, over which large puts are
// striped.
//
//	EP  EP     EP            operations: frames in the transmit buffer, extents for
//	 \  /      |             the caller's buffers, an op for each expected reply
//	 conn     conn           one for each peer iface; exists also without a socket
//	  |        |
//	socket   socket          nonblocking; attached after the handshake
//	   \      /
//	    epoll                polled without waiting, less often than the sockets that
//	                         were active lately
//
// Progress of the peer executes puts, gets and atomics. They can access only memory that the peer
// has registered, with its key, and if the registration grants that access.
//
// The first message after a Progress is written to the socket at once. The messages that follow are
// collected, and written by Progress or when JOIN bytes are queued.
//
// A connection remains open as long as both ifaces are open, unless IfaceParams.IdleTimeout is set and
// no EP of either side uses it (unused.go). An iface that closes sends BYE as its last frame, so the peer can distinguish this from the death of the process. A connection
// costs a socket and RX_BUF bytes, and TX_BUF bytes after this side has sent. Handlers of active
// messages cannot retain the data: it is between other messages in the receive buffer, and a buffer
// for each message would need the copy that retaining avoids.
//
// Any process can connect to the port of an iface. The resources of an accepted connection are
// limited until an EP of this side names its peer (unproven.go). The handshake proves which iface
// the peer is (proof.go, docs/design/0009-tcp-identity.md).
//
// A peer that computes or is not scheduled has no time limit, because its host acknowledges what it
// receives. If a host acknowledges nothing for USER_TIMEOUT, it counts as dead (uct/internal/alive)
// and its connection fails. Progress reads what has arrived for a handshake before it checks the
// deadline of the handshake.
//
// Progress does all the work; there are no goroutines. docs/wire.md has the formats.
//
// With TLS (Config.TLSCert or Config.TLS) each connection has two goroutines (internal/tunnel).
// They move bytes between crypto/tls and a pair of unix sockets, of which the connection uses one
// in place of the TCP socket. An iface with TLS and one without reject each other. Calls of
// Progress alone do not run the goroutines: if the caller polls without pause and GOMAXPROCS is 1,
// the goroutines check their sockets only every 10 ms. Wait with EventFD in this case.
package tcp
