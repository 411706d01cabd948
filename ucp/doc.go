// Package ucp is the layer that applications use: put, get and atomics on memory
// of other processes, messages and streams, over the best transports that both sides have.
//
//	Context    open devices, registered memory           any goroutine
//	   |  NewWorker
//	   Worker     transports, progress                   one goroutine at a time
//	   |  NewEP (from a worker address)
//	   EP         one peer                               the worker's goroutine
//	   |  Unpack (from Mem.Pack of the peer)
//	   RKey       memory of that peer                    the worker's goroutine
//
// # Operations
//
// [EP.Put], [EP.Get] and the atomics return (nil, nil) when they are complete: the buffer
// belongs to the caller again. Otherwise they return a [Request], and the
// buffer belongs to gucx until the request is complete. Check it with Done or Test, or block in
// Wait. An operation may have any size; gucx splits it into what the transport accepts. If
// queues are full, [Worker.Progress] continues it. When a Flush is complete, all earlier puts
// and posted atomics are complete at the peer. Operations are not ordered
// unless a Fence or a Flush is between them.
//
// The blocking forms (PutWait and so on) make progress and return early when their context is
// done. The operation is then abandoned: parts that were not posted are not posted any more,
// posted parts take effect or not, and no transport accesses the buffer after the
// return. If a transport is using the buffer, the call first waits until it has stopped: for a get of more
// than 8 KiB, and for operations without a copy. It waits at most ucs.RevokeLimit;
// then the EP fails with ErrCanceled, which stops the transport.
//
// The target's CPU does not take part in puts, gets, and atomics of the transport. But the target's worker must
// make progress to accept connections, and for operations that the transport cannot do by itself;
// over tcp these are all operations. [Worker.Serve] makes progress in a goroutine.
//
// [EP.PutImplicit], [EP.GetImplicit], [EP.AtomicFetchImplicit] and [EP.AtomicCSwapImplicit] make
// no request. Many of them before a flush are cheaper; only the flush reports that they are complete.
//
// [EP.PutList] and [EP.GetList] put or get several pieces of memory with one request.
//
// [EP.PutNotify] puts data and then notifies the peer: its worker receives a 64-bit word
// when the data is there; see [Worker.OnNotify]. Over rc a word below 2^32 is sent with the data.
//
// # Messages
//
// [EP.TagSend] sends a message with a 64-bit tag. [Worker.TagRecv] receives a message from any peer whose tag
// equals the given one in the bits of a mask. A message matches the earliest posted receive
// that fits, and a receive matches the earliest message. The request of [EP.TagSendSync] completes when the message
// is matched. [Worker.TagProbe] finds an unexpected message and can remove it. [EP.SendActive] sends an active
// message, which runs a handler of the peer; see [Worker.OnActive]. Messages of an EP are ordered.
//
// Messages below Config.RndvThresh are eager: the peer stores them if no receive is posted,
// within a budget of bytes (Config.EagerWindow and Config.EagerBudget). For larger messages, and without
// credit for eager ones, the sender sends a request to send (RTS), and the data remains in its buffer until it is
// received (rendezvous). So the memory of unexpected messages is bounded, and a peer that does not
// receive blocks only its own senders. When the window of the peer is used up, a sender queues
// messages locally. A receive or a repeated probe also matches queued tagged messages, at the cost of a round trip and
// of progress of the sender: messages can be received in any order. See docs/design/0012-order.md.
//
// The data of a message is one buffer, a list ([Buffers]), or produced and consumed by callbacks
// ([From], [To]): [EP.TagSendData], [Worker.TagRecvData], [EP.SendActiveData], [ActiveMessage.RecvData],
// [EP.StreamSendData]. [EP.StreamRecvData] receives into a list.
//
// # Requests
//
// A nil request is complete without an error; all waiting calls accept it. Wait for requests with
// [Request.Wait], [WaitAny] or [WaitAll], test them with
// [Request.Test], cancel them with [Request.Cancel] before anything was posted. Wait and Test release a
// complete request. Progress calls OpParams.OnDone when the operation completes, but not for
// an operation that was complete when its call returned.
//
// # Streams
//
// [EP.StreamSend] and [EP.StreamRecv] transfer a stream of bytes without message boundaries, as
// TCP does: a receive completes with the bytes that have arrived, up to the length of its buffer.
// Bytes that arrive before a receive are stored. [EP.StreamData] returns them
// without another copy, and [Worker.StreamReady] returns an EP with stored bytes. A peer that does not read
// blocks the sender of that EP, with all its later messages, and no other. A flush waits
// until bytes are sent, not until they are read. After the peer has closed its EP gracefully, bytes that it
// has sent can still be received.
//
// # Atomics
//
// Atomics operate on remote words of 4 or 8 bytes, aligned to their size, little
// endian. The implementation depends on the lane:
//
//  1. the transport's own operation;
//  2. otherwise a loop around the transport's compare-and-swap. For a 4-byte word it exchanges
//     the aligned 8 bytes around it, if the region contains them. The target executes no code for this
//     either, and it is atomic with (1);
//  3. otherwise, if no transport has atomics, or the 8 bytes are not all in the
//     region, the target executes the operation with CPU atomics when it makes progress.
//
// With AtomicDomain "device", (3) is not atomic with (1) and (2): access a word
// near the edge of a region only through that region.
//
// # Connections
//
// NewEP sends no message and opens no transport endpoint. The first operation that needs a lane
// (a transport endpoint for put and get, for atomics, or for active messages) makes
// the next Progress connect it; until then operations wait. [EP.Explain] explains
// the selection of the lanes. If a transport cannot carry the handshake, the
// next best is used. If both sides have two devices of a transport, the data of large
// messages uses lanes over both (Config.MaxRndvRails), and large puts and gets too if
// Config.MaxRMARails permits it. After the handshake the transport that carried it
// is no longer polled.
//
// # Listen and Dial
//
// [Worker.Listen] listens on tcp, unix or abstract unix sockets, and
// [Worker.Dial] connects to a listener: the two workers exchange addresses, private data, and the keys that the
// listener publishes by name, and connect; then the socket is closed. The listener accepts or rejects
// each dialer, and has callbacks for connected and disconnected peers. It listens beyond
// loopback only if the address says so; unix sockets accept only the same user. Programs with
// another channel for addresses and keys use NewEP.
//
// # Keys
//
// A key is resolved when it is unpacked, and again when a lane becomes active: the
// lane's methods, the transport's form of the key, the maximum length of a put in one call. Operations need no
// lookup. For measurements, some settings restore the behavior of the UCX version that Papadopoulou and others studied
// (CCGrid 2017): [Study] and Connect in [Config], and PollIdleTx in the configuration of uct/ib.
//
// # Registration of buffers
//
// Some transports and peers can only access registered memory. If the caller has not registered
// the buffer of a large message, put or get (OpParams.Mem), gucx registers it if that
// is faster than copying; Config.Costs decides for messages, the declared costs of the transport for put and
// get. The registration is cached for the next operation, for each worker and memory
// domain: GUCX_RCACHE_ENABLE, _OVERHEAD, _MAX_SIZE, _MAX_REGIONS. The garbage collector cannot free registered
// memory of the heap; these limits bound its size, and [Worker.Purge] deregisters all of it.
// Call [Worker.Invalidate] for other memory before it is unmapped or freed.
//
// A peer that gets the data of a message has a key to read the buffer, and no other memory, as long as the buffer is
// registered. So an untrusted peer can read data that the program later writes to the buffer. In the same way, a peer that
// puts the data of a message has a key to write to the receive buffer. With GUCX_RCACHE_MAX_SIZE=0 the key is revoked when
// the message is complete. The key of a failed operation is always revoked.
//
// # Inspection
//
// [EP.Info], [Worker.Info] and [Context.Info] describe configuration and state as data; [EP.Explain] is their
// text. [Worker.Inspect] lets the owner of a worker call them for another goroutine.
//
// # Counters
//
// [Worker.Stats] is a tree of counters: rejections, failures, waits and sleeps, EPs by the side that made them, results
// of Dial, and the counters of each transport. A peer that disconnects gracefully counts in left_peers and
// closed_lanes, and not as a failure. The counters cost nothing in operations that complete in one call. Any goroutine
// may read them, and expvar.Publish accepts the tree. [Worker.Snapshot] also counts bytes of messages, which it derives
// from the credit of each connection.
//
// # Errors
//
// Every operation completes exactly once, when no transport uses its buffers any more: an operation
// that is aborted by a failure or by CloseForce completes a little later than its EP fails. A call that
// returns an error had no effect. If a lane
// fails and another transport of both sides can replace it, gucx uses that: operations that
// were not posted move to it, posted ones fail with the reason, and the next flush
// reports the failure, because puts without a request may be lost. [EP.Explain] lists transports
// that failed. If no transport is left, or the reason means that the peer is
// gone, the EP fails: all its requests complete with the reason, [EP.Err] returns it, usually
// before the first of them completes, and the caller must close the EP. Other EPs are not
// affected. Some requests may still complete with StatusOK. The reason is
//
//   - ErrPeerClosed if the peer closed its EP or its worker;
//   - ErrConnReset if the peer's process ended otherwise, for example by a kill, or became unreachable;
//   - ErrTimedOut if an operation needs a lane and the handshake has not progressed
//     for Config.WireupTimeout, or if a transport got no reply and cannot detect
//     the reason;
//   - ErrRemoteAccess if the target rejected an access that the key seemed to permit.
//
// An error is an [Error]: one line with the operation, the peer, the transport and the
// cause. errors.Is matches the cause, and ErrEPFailed if the EP has failed.
//
// # Goroutines
//
// One goroutine at a time owns a worker and everything made from it; there are no locks. Any goroutine may call
// Worker.Address, Worker.Signal and Worker.Inspect, and also Worker.Close while the
// owner is in a blocking call, which then returns ErrClosed. Callbacks run inside Progress and
// must not call it. A second blocking call on a worker panics, and so may any
// other concurrent use. After a panic in a callback the worker is not usable any
// more, even if the program recovers: end the process. A deferred Worker.Close does not wait for a
// Serve that such a panic has ended; it may panic too. With [SharedWorker] several goroutines use a worker in
// turns.
//
// A blocking call polls, yields, and parks. The time that it polls before it parks adapts to
// the duration of recent waits and to whether polling has found something, and is shorter while there are more waiters than
// CPUs; Config.SpinPolls (GUCX_SPIN_POLLS) fixes it. A parked worker uses no CPU.
//
// # Threads
//
// Each thread has its own worker. Workers of one Context share its devices and its
// registered memory; with a Context for each thread nothing is shared and each registers memory
// for itself. The category of endpoints (ib.Config.Endpoints, GUCX_IB_ENDPOINTS) determines what workers share of
// an InfiniBand device:
//
//	MPI-everywhere   a device context for each: a Context for each thread
//	2xDynamic        one device context; a UAR page and queues for each, and as much unused
//	Dynamic          one device context; a UAR page for each
//	SharedDynamic    one device context; a UAR page for two interfaces
//	Static           one device context; its registers for all, under locks
//	MPI+threads      one worker for all threads: Worker.Share
//
// The default is Dynamic. With the first and the last a Context has one worker, and a
// second one is rejected with ErrBusy. The category has no effect on other transports.
package ucp
