// Package ucp is the layer that applications use: put, get and atomics on memory
// of other processes, over the best transports that both sides have.
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
// [EP.Put], [EP.Get] and the atomics return (nil, nil) when nothing is left to do:
// the buffer is the caller's again. Otherwise they return a [Request], and the
// buffer is the caller's when that has ended; ask with Done or Test, or block with
// Wait. An operation of any size is cut into what the transport takes; one that
// finds queues full goes on by itself when [Worker.Progress] is called. Puts and
// posted atomics are at the peer when a Flush has ended. Operations are not ordered
// unless a Fence or a Flush is between them.
//
// The blocking forms (PutWait and so on) make progress themselves and obey their context. A call
// that returns as its context has ended is given up: what was not posted is not posted any more,
// what was posted takes effect or not, and no transport reads or writes the buffer after the
// return. So a call whose buffer a transport still uses waits until that has ended: a get of more
// than 8 KiB, or an operation that moves the buffer without a copy. It waits for ucs.RevokeLimit
// at most; then the EP fails with ErrCanceled, which ends the use. A target takes no part in put
// and get, and none in atomics that the transport can do; but its worker must make progress to be
// connected to, and for what the transport cannot do by itself, which over tcp is everything.
// [Worker.Serve] does that in a goroutine.
//
// [EP.PutImplicit], [EP.GetImplicit], [EP.AtomicFetchImplicit] and [EP.AtomicCSwapImplicit] make
// no request: many of them before a flush cost less, and only the flush says that they are done.
//
// [EP.PutNotify] puts and then tells: the peer's worker gets a word of 64 bits as an event,
// when the data is there; see [Worker.OnNotify]. Over rc a word below 2^32 travels with the data.
//
// # Messages
//
// [EP.TagSend] sends a message with a tag of 64 bits; [Worker.TagRecv] receives one whose tag
// agrees in the bits of a mask, from any peer. A message takes the earliest posted receive
// that it fits, a receive the earliest message. [EP.TagSendSync] ends when the message is
// matched, [Worker.TagProbe] looks for one and can take it out. [EP.SendActive] has a
// handler of the peer run instead, see [Worker.OnActive]. Messages of an EP keep their
// order.
//
// A short message goes in one call and without a request; it is eager, as is all below
// Config.RndvThresh: what no receive waits for is kept by the peer, within a budget of bytes
// (Config.EagerWindow and Config.EagerBudget). What is longer, or finds no room, is announced and
// stays here until it is received (rendezvous). So memory is bounded, and a peer that does not
// receive holds up those that send to it, and nobody else. When its window is used up, a sender
// may still have some 40 announcements outstanding; after those it sends nothing until messages
// are received. So a receiver that takes messages in another order than they come must not wait
// for one that is sent behind more than these.
//
// Messages are bytes in one piece, or a list ([Buffers]), or made and taken by callbacks
// ([From], [To]): [EP.TagSendData], [Worker.TagRecvData], [EP.SendActiveData].
//
// # Requests
//
// A nil request has ended well, and may be waited for as any other. A request is waited for by
// [Request.Wait], [WaitAny] or [WaitAll], tested by
// [Request.Test], canceled by [Request.Cancel] as long as nothing has happened, and then
// given back. OpParams.OnDone is called from Progress when the operation has ended; not for
// one that had ended when the call returned.
//
// # Streams
//
// [EP.StreamSend] and [EP.StreamRecv] move bytes in order and without bounds, as a
// connection of TCP does: a receive takes some or all of what it has room for, however the
// sender has cut it. Bytes go into the buffer of a receive that waits; what comes before
// that is kept, [EP.StreamData] lends it without another copy, and [Worker.StreamReady]
// tells on which EP there is some. A peer that does not read holds back the sender of that
// EP, with all messages behind, and nobody else. A flush waits for bytes to be on their
// way, not to be read. When the peer has closed its EP in order, what it had sent can still
// be received.
//
// # Atomics
//
// Atomics work on remote words of 4 or 8 bytes, aligned to their size, little
// endian. How an operation is done depends on what the lane has:
//
//  1. the transport's own operation;
//  2. otherwise a loop around the transport's compare-and-swap. A 4-byte word is
//     swapped within the aligned 8 bytes around it if the region holds them. This
//     too goes without the target's help and is atomic with (1);
//  3. otherwise, if no transport has atomics, or the 8 bytes are not all in the
//     region, the target executes the operation when it makes progress, by CPU
//     atomics.
//
// With AtomicDomain "device", (3) is not atomic with (1) and (2): reach a word
// near the edge of a region through that region only.
//
// # Connections
//
// NewEP sends nothing and opens nothing. The first operation that needs a lane
// (a transport endpoint for put and get, for atomics, or for active messages) has
// the next Progress connect it; until then operations wait. Package wireup chooses
// the lanes, [EP.Explain] tells why. A transport that cannot carry the handshake is
// replaced by the next best. The data of long messages is shared by lanes over two devices of the
// same transport where both sides have them (Config.MaxRndvRails), long puts and gets if
// Config.MaxRMARails says so. When the handshake is over, the transport that carried it
// is no longer polled.
//
// # Finding each other
//
// [Worker.Listen] has peers find a worker over tcp, unix and abstract unix sockets, and
// [Worker.Dial] finds one: the two swap addresses, private data, and the keys that the
// listener publishes by name, and connect; then the socket is closed. The listener decides
// about each dialer and is told who comes, over which EP, and who goes. Nothing listens beyond
// loopback unless the address says so, and unix sockets are for the same user. Programs with
// other means hand addresses and keys over themselves, and use NewEP.
//
// # Keys
//
// A key is bound when it is unpacked and again when a lane becomes active: the
// lane's methods, the transport's form of the key, the length up to which a put goes
// out in one call. Nothing is looked up later. Switches bring
// back, for measurements, what UCX did when it was studied (Papadopoulou and others,
// CCGrid 2017): [Study] and Connect in [Config], and PollIdleTx in the
// configuration of uct/ib.
//
// # Memory that is registered for an operation
//
// Some transports and peers reach only registered memory. If the caller has not registered
// the buffer of a long message, put or get (OpParams.Mem), the operation does so where that
// takes less time than copies, by Config.Costs for messages and by the declared costs for put and
// get. The buffer stays registered for the next operation, in a cache for each worker and memory
// domain: GUCX_RCACHE_ENABLE, _OVERHEAD, _MAX_SIZE, _MAX_REGIONS. Registered memory of the heap
// cannot be collected; the bounds say how much that is at most, and [Worker.Purge] lets go of all.
// Other memory must be given to [Worker.Invalidate] before it is unmapped or freed.
//
// A peer that gets the data of a message has a key to read the buffer, and nothing else, for as
// long as the buffer stays registered: an untrusted peer can read what the program writes there
// later. A peer that puts the data of a message likewise has a key to write to the buffer of the
// receive. With MAX_SIZE=0 the key is taken back when the message has ended. The key of an
// operation that has failed is always taken back.
//
// # Looking inside
//
// [EP.Info], [Worker.Info] and [Context.Info] describe what there is and what it does, as data; [EP.Explain] is the
// text of that. [Worker.Inspect] has the owner of a worker call them for another goroutine.
//
// # Counters
//
// [Worker.Stats] is a tree of what was refused, broke, waited or slept, with the EPs by who has made them, calls of
// Dial by result, and the counters of each transport below it. A peer that leaves in order counts in left_peers and
// closed_lanes, and not as a failure. It costs operations that go in one call nothing, any goroutine may read it, and
// expvar.Publish takes it. Bytes of messages follow from the credit of each connection; [Worker.Snapshot] counts them.
//
// # Errors
//
// Every operation ends exactly once, when no transport has any part of it any more: one
// that is cut off, by a failure or by CloseForce, ends a little later than its EP. An
// operation that is refused had no effect and its error is returned at once. When a lane
// breaks and another transport of both sides can do its work, that takes over: what had
// not been posted moves, what had been posted ends with the reason, and the next flush
// reports it, since puts without a request may be lost. [EP.Explain] tells which transports
// were given up. With no transport left, and at once when the reason says that the peer is
// gone, the EP fails: every request of it ends with the reason, [EP.Err] tells it, as a rule
// before the first of them has ended, and what remains is to close the EP. Other EPs work
// on. What was complete stays complete: some requests may end with StatusOK. The reason is
//
//   - ErrPeerClosed if the peer left in order: it closed its EP or its worker;
//   - ErrConnReset if its process ended otherwise, also by a kill, or vanished;
//   - ErrTimedOut if an operation needs a lane and the peer did not go on with the
//     handshake for Config.WireupTimeout, or if a transport that has no other way to find
//     out got no answer;
//   - ErrRemoteAccess if the target refused an access that the key seemed to permit.
//
// An error is an [Error]: one line with the operation, the peer, the transport and the
// cause, which errors.Is finds, as it finds ErrEPFailed if the EP has failed.
//
// # Goroutines
//
// One goroutine at a time owns a worker with everything made from it; nothing is locked. Only
// Worker.Address and Worker.Signal may be called by any goroutine, and Worker.Close while the
// owner is in a blocking call, which then ends with ErrClosed. Callbacks run inside Progress and
// must not call it. A second blocking call on a worker while one goes on panics, and so may all
// else that two goroutines do at once. After a panic in a callback the worker cannot be used any
// more, even if the program recovers: end the process. A deferred Worker.Close does not wait for a
// Serve that such a panic has ended; it may panic too. [SharedWorker] lets several goroutines take
// turns.
//
// A blocking call polls, yields, and parks. How long it polls before it parks adapts to
// how long waits have taken lately, and is less while there are more waiters than
// processors; Config.SpinPolls (GUCX_SPIN_POLLS) fixes it. A parked worker costs nothing.
//
// # Threads
//
// A thread has a worker of its own. Workers of one Context share its devices and its
// registered memory; a Context for each thread shares nothing and registers the memory
// once for each. What workers have in common of an InfiniBand device is its category of
// endpoints (ib.Config.Endpoints, GUCX_IB_ENDPOINTS):
//
//	MPI-everywhere   a device context for each: a Context for each thread
//	2xDynamic        one device context; a UAR page and queues for each, and as much unused
//	Dynamic          one device context; a UAR page for each
//	SharedDynamic    one device context; a UAR page for two interfaces
//	Static           one device context; its registers for all, under locks
//	MPI+threads      one worker for all threads: Worker.Share
//
// The default is Dynamic. With the first and the last a Context has one worker, and a
// second one is refused with ErrBusy. Transports without a device to share do not care.
package ucp
