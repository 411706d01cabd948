// Package ucpnet has connections of package net over the streams of package ucp: what reads
// and writes a [net.Conn] then runs over shared memory, InfiniBand or whatever transport
// reaches the peer best.
//
//	l, err := ucpnet.Listen(ctx, shared, "tcp", ":7000")
//	conn, err := l.Accept()
//
//	conn, err := ucpnet.Dial(ctx, shared, "tcp", "server:7000")
//
// The worker must be shared ([ucp.Worker.Share]): its connections may be used by any
// goroutines at once, and a connection is found by a socket, which [ucp.Worker.Listen]
// describes, with who may connect. All connections and listeners of a worker take turns.
//
// # Progress
//
// Nothing here starts a goroutine. A call that blocks makes progress for all, as every
// blocking call of a [ucp.SharedWorker] does: Read, Write, Accept, Dial and Close. A program
// none of whose goroutines is in such a call for long needs one in [ucp.SharedWorker.Serve]:
// otherwise bytes that Write has copied may not leave. Accept returns a connection when the Dial of
// the peer can return without further progress.
//
// # Security
//
// By default everything is in clear and unauthenticated: who reaches the address can connect. With the
// TLS settings of the tcp transport or a token (ucp.Config.AuthToken), Listen and Dial demand a
// certificate or the token of the other side: see ucp.Worker.Listen, and docs/security.md.
//
// # What differs from TCP
//
// Write returns when the bytes are on their way, or kept by a transport; the peer's
// window (ucp.Config.EagerWindow) bounds what it has not read, and Write waits for it.
// It bounds it to about 14 KB as long as the peer's process has made no call since it accepted.
// Close and CloseWrite tell the peer behind all that was written, and wait until
// transports have taken it: over tcp, up to 5 seconds for a peer whose process makes no call. A peer that closes without having read everything ends the connection in
// order: reads return io.EOF and not syscall.ECONNRESET.
//
// # Errors
//
// errors.Is finds what it finds in errors of package net, besides the errors of ucp:
//
//   - net.ErrClosed: the connection, the listener or the worker was closed on this side;
//   - os.ErrDeadlineExceeded: a deadline has passed; Timeout reports true;
//   - io.EOF, of Read alone: the peer has called Close or CloseWrite;
//   - syscall.EPIPE, of Write: CloseWrite was called, or the peer has closed;
//   - syscall.ECONNRESET: the process of the peer has died;
//   - syscall.ETIMEDOUT: the host of the peer does not reply;
//   - syscall.ECONNREFUSED, of Dial: nobody listens there.
//
// Addresses are those of the socket by which the ends found each other, in the types of package net. Who the
// peer is says Conn.PeerIdentity.
//
// # Restart without refusing anybody
//
// A process passes its socket on to the next one, as for package net: [Listener.Detach] returns it, the next
// process gets the descriptor (os/exec's ExtraFiles), and makes a listener of it by net.FileListener and
// [ListenOn]. Dialers wait in the socket meanwhile. The old process calls [Listener.Drain], with a goroutine in
// Accept, then Shutdown of its server or Close, and ends when its connections have. Over tcp this takes
// GUCX_TCP_SHARE_PORT to be try, the default: a dialer that the old process has accepted connects to the port
// of its tcp interface then. Shutdown of net/http drops connections without a request, also those of package net:
// their clients try again.
//
// # Cost
//
// A call costs what sharing a worker costs: its lock, up to six allocations, and where
// another goroutine makes progress, as one in Accept or Serve does, waking the caller. Data is
// copied once by the sender into a transport buffer, and once by the receiver: into the buffer
// of a Read that waits, else into one of the worker and from there. Between two goroutines of
// a busy machine with 2 processors a round trip took no less than over TCP on loopback (go test
// -bench . ./ucp/ucpnet): this package is for programs that know package net. Who needs less
// uses ucp.EP.StreamSend and StreamRecv on a worker of its own, which allocate nothing.
package ucpnet
