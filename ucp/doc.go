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
// The blocking forms (PutWait and so on) make progress themselves and obey their
// context. A target takes no part in put and get, and none in atomics that the
// transport can do; but its worker must make progress to be connected to, and for
// what the transport cannot do by itself, which over tcp is everything.
// [Worker.Serve] does that in a goroutine.
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
// replaced by the next best. When the handshake is over, the transport that carried it
// is no longer polled.
//
// # Keys
//
// A key is bound when it is unpacked and again when a lane becomes active: the
// lane's methods, the transport's form of the key, the length up to which a put goes
// out in one call. Nothing is looked up later. Three switches in [Config] bring
// back, for measurements, what UCX did when it was studied (Papadopoulou and others,
// CCGrid 2017): KeyResolve, PollIdleTx, ProgressIdle; a fourth is Connect.
//
// # Counters
//
// [Worker.Stats] is a tree of what was refused, broke or slept, with the counters of
// each transport below it. It costs operations nothing, any goroutine may read it, and
// expvar.Publish takes it.
//
// # Errors
//
// Every operation ends exactly once. An operation that is refused had no effect and
// its error is returned at once. When a lane breaks, because the peer died or an
// access was refused at the target, the EP fails: every request of it ends with the
// reason, [EP.Err] tells it, and what remains is to close the EP. Other EPs work on.
// The reason is ErrConnReset if the peer closed its EP or its process ended, also
// by a kill, and ErrTimedOut if the transport found out by getting no answer, or if
// an operation needs a lane and the peer did not go on with the handshake for
// Config.WireupTimeout. What was complete stays complete: some requests may end with
// StatusOK.
//
// # Goroutines
//
// One goroutine at a time owns a worker with everything made from it; nothing is
// locked. Only Worker.Address and Worker.Signal may be called by any goroutine.
// Callbacks run inside Progress and must not call it. [SharedWorker] lets several
// goroutines take turns.
//
// # Threads
//
// What the workers of a context have in common of a device, and so what a thread costs
// there, is Config.IBEndpoints (GUCX_IB_ENDPOINTS), one of six categories:
//
//	MPI-everywhere   a device context for each worker
//	2xDynamic        one context; a UAR page and queues for each, and as much unused
//	Dynamic          one context; a UAR page for each
//	SharedDynamic    one context; a UAR page for two interfaces
//	Static           one context; its registers for all, under locks
//	MPI+threads      one worker in the context, for all threads: Worker.Share
//
// The default, auto, leaves it to the configuration of each transport, which is
// Dynamic. Transports without a device to share do not care.
//
// With MPI-everywhere memory of the context is registered with the device context of
// every worker, so operations and keys work as ever, with one rule: Mem.Pack a key
// after the workers were made in which it is to be used; an EP to a later one refuses
// it. There are at most 32 memory domains in a context, one for each worker and one for each
// other component. With MPI+threads a second worker is refused with ErrBusy.
package ucp
