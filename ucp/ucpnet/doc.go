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
// Close tells the peer behind all that was written, and waits up to 5 seconds until
// transports have taken it. There is no half-close. The end of the peer's process shows as
// ucs.ErrConnReset.
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
