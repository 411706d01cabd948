// Package ucpnet implements [net.Conn] and [net.Listener] over the streams of package ucp, so that programs
// that use them run over shared memory, InfiniBand, or another transport that reaches the peer.
//
//	l, err := ucpnet.Listen(ctx, shared, "tcp", ":7000")
//	conn, err := l.Accept()
//
//	conn, err := ucpnet.Dial(ctx, shared, "tcp", "server:7000")
//
// The worker must be shared ([ucp.Worker.Share]): several goroutines may use its connections
// concurrently. Dial and Listen connect through a socket; [ucp.Worker.Listen]
// describes it, and which processes may connect. All calls of the connections and listeners of one worker take the same
// lock.
//
// # Progress
//
// This package starts no goroutine. A blocked call makes progress for all connections of the worker, as every
// blocking call of a [ucp.SharedWorker] does: Read, Write, Accept, Dial and Close. If no goroutine
// of the program is blocked in such a call, one must run [ucp.SharedWorker.Serve]:
// otherwise bytes that Write has copied may not be sent. Accept returns a connection when the Dial of
// the peer can return without further progress.
//
// # Security
//
// By default nothing is encrypted or authenticated: any process that reaches the address can connect. With the
// TLS settings of the tcp transport or a token (ucp.Config.AuthToken), Listen and Dial require a
// certificate or the token from the other side: see ucp.Worker.Listen, and docs/security.md.
//
// # What differs from TCP
//
// Write returns when the bytes are sent or copied by a transport. The peer's
// window (ucp.Config.EagerWindow) limits the bytes that the peer has not read; Write waits for room.
// The limit is about 14 KB until the peer's process makes its first call after Accept.
// Close and CloseWrite send the end of the stream after all written bytes, and wait until a
// transport has sent it: over tcp, up to 5 seconds for a peer whose process makes no call. If a peer closes
// before it has read everything, reads return io.EOF and not syscall.ECONNRESET.
//
// # Errors
//
// Errors match those of package net, and those of ucp:
//
//   - net.ErrClosed: the connection, the listener or the worker was closed on this side;
//   - os.ErrDeadlineExceeded: a deadline has passed; Timeout returns true;
//   - io.EOF, of Read only: the peer has called Close or CloseWrite;
//   - syscall.EPIPE, of Write: CloseWrite was called, or the peer has closed;
//   - syscall.ECONNRESET: the process of the peer has died;
//   - syscall.ETIMEDOUT: the host of the peer does not reply;
//   - syscall.ECONNREFUSED, of Dial: no process listens there.
//
// Addresses are those of the socket of Dial and Listen, in the types of package net. Conn.PeerIdentity returns
// the identity of the peer.
//
// # Restart without rejecting connections
//
// A process passes its socket to its successor, as with package net: [Listener.Detach] returns the socket, the
// successor inherits the descriptor (os/exec's ExtraFiles), and makes a listener of it by net.FileListener and
// [ListenOn]. In between, dialers wait in the queue of the socket. The old process calls [Listener.Drain] while a
// goroutine calls Accept, then Shutdown of its server or Close, and exits when its connections are closed. Over tcp this
// requires GUCX_TCP_SHARE_PORT=try, the default: a dialer that the old process has accepted then connects to the port
// of its tcp interface. As with package net, Shutdown of net/http drops connections without a request;
// their clients try again.
//
// # Cost
//
// Each call takes the lock of the shared worker and makes up to six allocations. If
// another goroutine makes progress, for example in Accept or Serve, it must also wake the caller. The sender
// copies data once into a transport buffer. The receiver copies it once into the buffer
// of a blocked Read, or twice, by way of a buffer of the worker. Between two goroutines of
// a busy machine with 2 CPUs a round trip takes as long as over TCP on loopback (go test
// -bench . ./ucp/ucpnet): this package is for programs that use package net. For the lowest latency
// use ucp.EP.StreamSend and StreamRecv on an unshared worker, which allocate nothing.
package ucpnet
