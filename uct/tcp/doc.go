// Package tcp is the transport over TCP sockets, for hosts without RDMA devices
// and between hosts: active messages, put, get and atomics.
//
// An Iface listens on the addresses of one network device and keeps one
// connection to each peer iface, whichever side opened it. All EPs to that peer
// share it. Nothing is sent before the first operation. Further connections, over
// which long puts are striped, are an option.
//
//	EP  EP     EP            operations: frames in the transmit buffer, zero-copy
//	 \  /      |             pieces beside it, an entry for each answer to come
//	 conn     conn           one for each peer iface; lives without a socket too
//	  |        |
//	socket   socket          nonblocking, raw; attached after the handshake
//	   \      /
//	    epoll                looked at with timeout 0, less often than the sockets
//	                         that were active lately
//
// Put, get and atomics are served by Progress of the peer, only within memory
// that it registered, with the matching key and the right that was granted.
//
// A message is written at once when nothing was posted since the last Progress;
// those that follow are joined, and written by Progress or when they are many.
// A connection stays open as long as both ifaces are: closing one that is idle needs
// the consent of the other side, which may be about to send. An iface that closes says
// so in its last frame, by which the peer tells that from the end of a process. What a
// connection costs is a socket, RX_BUF, and TX_BUF once this side has sent. Handlers of
// active messages cannot keep the data: it lies between other messages, and a buffer
// for each would cost the copy that keeping saves.
//
// Anyone can connect to the port of an iface. What a connection may hold before something here
// names its peer is limited (unproven.go), and the handshake proves which iface the peer is
// (proof.go); docs/design/0009-tcp-identity.md.
//
// A peer that computes, or gets no processor, may take as long as it likes: its host answers. A
// host that acknowledges nothing for USER_TIMEOUT is taken for gone (uct/internal/alive), and its
// connection fails. What has a deadline in the handshake is looked for before the clock is.
//
// Progress does all the work; there are no goroutines. Formats: docs/wire.md.
//
// With TLS (Config.TLSCert or Config.TLS) each connection has two goroutines
// (internal/tunnel), which move its bytes between a pair of unix sockets, where a plain
// connection has its socket, and crypto/tls. An iface with TLS and one without refuse each other.
// Polling alone does not drive the goroutines: where Progress is called without
// end on the only processor (GOMAXPROCS=1), they get a look at their sockets each
// 10 ms. Wait by EventFD there.
package tcp
