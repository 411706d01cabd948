package ucp

import (
	"context"
	"fmt"
	"time"

	"github.com/gucx/gucx/internal/handle"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp/internal/bootstrap"
	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// This file and export_lanes_test.go and export_messages_test.go list what tests of package ucp_test use of the inside:
// the state of workers, EPs and requests, and calls that a transport or a peer would cause.

// Limits and defaults.
const (
	DefaultKeepalive     = defaultKeepalive
	DefaultMaxEPsPerPeer = defaultMaxEPsPerPeer
	MaxStaged            = maxStaged
	MaxPeerKeys          = maxPeerKeys
	IdleCheck            = idleCheck
	RequestChunk         = chunk
	ChecksBeforeSleep    = maxChecksBeforeSleep
	ResignAfter          = resignAfter
	RepliesAssumed       = repliesAssumed
	RepliesSeen          = repliesSeen
	ConnectShare         = connectShare
	AllOpFlags           = allOpFlags
)

// FlagGroups are the flags of which at most one may be set.
var FlagGroups = flagGroups

// ErrLate is the reason of a dialer that did not connect in time.
var ErrLate = errLate

// AwaitBuffers permits an abandoned blocking call of the worker to wait for its buffer as long as a test may take: the
// threads of the other end may be stopped for longer than ucs.RevokeLimit.
func AwaitBuffers(w *Worker) { w.LimitBufferWait(testenv.Watchdog) }

// CheckPool returns an error if the worker, which is closed, has requests that were not released, or released
// requests that still refer to something.
func CheckPool(w *Worker) error {
	if used, refer := RequestsInUse(w), unclean(w); used != 0 || refer != 0 {
		return fmt.Errorf("%d requests were not released, and %d in the pool refer to something", used, refer)
	}
	return nil
}

// unclean counts the requests in the pools of w that refer to something of their last operation.
func unclean(w *Worker) (n int) {
	for _, free := range []*Request{w.pool.free, w.pool.receives} {
		for r := free; r != nil; r = r.next {
			if r.target.key != nil || r.msg != nil || r.cached != nil || r.pieces != nil || r.parent != nil || r.onDone != nil {
				n++
			}
		}
	}
	return n
}

// RequestsInUse counts the requests of w that are not in its pool.
func RequestsInUse(w *Worker) int {
	n := w.pool.made
	for _, free := range []*Request{w.pool.free, w.pool.receives} {
		for r := free; r != nil; r = r.next {
			n--
		}
	}
	return n
}

// Contexts.

// Memory returns the memory of c and its domains.
func (c *Context) Memory() *region.Set { return &c.memory }

// Configuration returns the resolved configuration, which a test may change for later EPs.
func (c *Context) Configuration() *Config { return &c.cfg }

// Ports returns the ports that workers of c share.
func (c *Context) Ports() *bootstrap.Ports { return &c.ports }

// Workers.

// EPs returns the EPs of w.
func (w *Worker) EPs() *handle.Table[*EP] { return &w.eps }

// Engine returns the engine, which polls and sleeps.
func (w *Worker) Engine() *engine.Engine { return &w.engine }

// BadMessages counts malformed and late messages of peers.
func (w *Worker) BadMessages() *stats.Counter { return &w.stats.badMessages }

// RequestsMade is the number of requests, in use or free.
func (w *Worker) RequestsMade() int { return w.pool.made }

// RemoteRequests returns the requests that peers know by an id.
func (w *Worker) RemoteRequests() *handle.Table[*Request] { return &w.pool.remote }

// FreeRequests calls f for each request in the pool.
func (w *Worker) FreeRequests(f func(*Request)) {
	for r := w.pool.free; r != nil; r = r.next {
		f(r)
	}
}

// WithoutPool calls f while the pool of requests is empty.
func (w *Worker) WithoutPool(f func()) {
	free := w.pool.free
	w.pool.free = nil
	defer func() { w.pool.free = free }()
	f()
}

// LimitBufferWait sets how long an abandoned blocking call waits for its buffer.
func (w *Worker) LimitBufferWait(d time.Duration) { w.bufferWaitLimit = d }

// Closed reports whether w was closed.
func (w *Worker) Closed() bool { return w.closed }

// Handler returns the handler of active messages of w with an id.
func (w *Worker) Handler(id uint8) func(data []byte, _ uct.Desc) bool {
	for _, p := range w.protocols {
		if p.handlers == nil {
			continue
		}
		for _, h := range p.handlers(w) {
			if h.id == id {
				return h.HandleAM
			}
		}
	}
	panic(fmt.Sprintf("no handler of messages with id %d", id))
}

// OpenSpans returns the open spans of the worker's statistics.
func (w *Worker) OpenSpans() int { return len(w.stats.spans.open) }

// CountTraffic adds the traffic of all EPs to the statistics.
func (w *Worker) CountTraffic() { w.countTraffic() }

// InspectionsQueued is the number of calls of Inspect that wait.
func (w *Worker) InspectionsQueued() int {
	w.inspections.mu.Lock()
	defer w.inspections.mu.Unlock()
	return len(w.inspections.queue)
}

// RunInspections runs the functions of the calls that wait.
func (w *Worker) RunInspections() { w.runInspections() }

// FinishBlocking waits for the request of a blocking call.
func (w *Worker) FinishBlocking(ctx context.Context, r *Request, err error) error {
	return w.finishBlocking(ctx, r, err)
}

// NewPendingRequest returns a request that completes only by Complete.
func (w *Worker) NewPendingRequest() *Request { return w.newRequest(nil, &groupStage) }

// Shared workers.

// Driven reports whether a goroutine makes progress.
func (s *SharedWorker) Driven() bool { return s.driven.Load() }

// Blocked is the number of goroutines that wait for the one that makes progress.
func (s *SharedWorker) Blocked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocked
}

// Parked reports whether the goroutine that makes progress sleeps. blocked is the number of goroutines that wait for it.
func (s *SharedWorker) Parked() (parked bool, blocked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parked, s.blocked
}

// LockWaiters is the number of goroutines that wait for the lock.
func (s *SharedWorker) LockWaiters() int { return int(s.lockWaiters.Load()) }

// Waiters returns the number of waiting goroutines that check a condition, and of those that a request wakes. The
// caller is in Do.
func (s *SharedWorker) Waiters() (byCondition, byRequest int) {
	return len(s.byCondition), len(s.byRequest)
}

// Vacancies is the number of times that no goroutine made progress so that another one may. The caller is in Do.
func (s *SharedWorker) Vacancies() uint { return s.vacancy.begun }

// ForgetLatest makes the next message a rare one. The caller is in Do.
func (s *SharedWorker) ForgetLatest() { s.vacancy.last = time.Time{} }

// StartTimer starts the timer that ends a vacancy. The caller is in Do.
func (s *SharedWorker) StartTimer(d time.Duration) {
	s.vacancy.set = true
	s.vacancy.timer = time.AfterFunc(d, s.endVacancy)
}

// StopTimer stops the timer. The caller is in Do.
func (s *SharedWorker) StopTimer() { s.setTimer(0) }

// EPs.

// ID returns the id of e, which messages of the peer contain.
func (e *EP) ID() uint64 { return e.id }

// Peer returns the peer.
func (e *EP) Peer() *conn.Peer { return e.peer }

// Sequence is the number of e among the EPs to the same peer.
func (e *EP) Sequence() uint32 { return e.seq }

// Phase is the phase of the life of e.
func (e *EP) Phase() epState { return e.state }

// PhaseClosed is the phase after Close.
const PhaseClosed = epClosed

// Fail fails e.
func (e *EP) Fail(st ucs.Status, reason error, i *Transport) { e.fail(st, reason, i) }

// MarkFailed makes e fail in the next Progress.
func (e *EP) MarkFailed(st ucs.Status, reason error, i *Transport) { e.markFailed(st, reason, i) }

// FailedWith returns the error with which e failed.
func (e *EP) FailedWith() error { return e.failed.err }

// SetOnError replaces EPConfig.OnError.
func (e *EP) SetOnError(f func(*EP, error)) { e.onError = f }

// AbortAndDisconnect closes e and its connection at once.
func (e *EP) AbortAndDisconnect() { e.abortAndDisconnect() }

// Busy reports whether e has operations.
func (e *EP) Busy() bool { return e.busy() }

// Operations returns the oldest operation in progress.
func (e *EP) Operations() *Request { return e.ops.first }

// Awaited returns the oldest request that waits for a message of the peer.
func (e *EP) Awaited() *Request { return e.awaited.first }

// Unposted counts operations that are not posted completely.
func (e *EP) Unposted() int { return int(e.counts.unposted) }

// Direct counts operations in progress that are in no list.
func (e *EP) Direct() int { return int(e.counts.direct) }

// RetainedIfaces returns transports of closed lanes that may still have operations.
func (e *EP) RetainedIfaces() *[]*iface { return e.retainedIfaces }

// Deadline returns the next deadline.
func (e *EP) Deadline() (at time.Duration, ok bool) { return e.deadline() }

// KeyCount is the number of unpacked keys.
func (e *EP) KeyCount() (n int) {
	for k := e.keys; k != nil; k = k.next {
		n++
	}
	return n
}

// EP returns the EP of k; nil after Close.
func (k *RKey) EP() *EP { return k.ep }

// RMA returns the transport key of k for its lane of puts.
func (k *RKey) RMA() uct.RKey { return k.rma }

// Putter returns the lane's Putter to which k is bound.
func (k *RKey) Putter() uct.Putter { return k.put }

// Late reports whether k looks up its lanes at each operation.
func (k *RKey) Late() bool {
	late := (*lateKey)(k)
	return k.put == uct.Putter(late) && k.get == uct.Getter(late) && k.amo == uct.Atomics(late)
}

// Requests.

// Take returns the result of a request, which is complete, and releases it.
func (r *Request) Take() error { return r.take() }

// Result returns the result of a request, which is complete.
func (r *Request) Result() error { return r.err() }

// Complete completes a request.
func (r *Request) Complete(st ucs.Status) { r.complete(st) }

// EP returns the EP of the operation.
func (r *Request) EP() *EP { return r.ep }

// Queued reports whether r is in a queue of its EP.
func (r *Request) Queued() bool { return r.flags&reqQueued != 0 }

// Delegated reports whether another request does the work of r.
func (r *Request) Delegated() bool { return r.place() == placeDelegated }

// Awaits reports whether r waits for a message of the peer.
func (r *Request) Awaits() bool { return r.awaits() }

// PostedInOneCall reports whether r was posted in one call, and waits for a message of the peer.
func (r *Request) PostedInOneCall() bool { return r.flags == reqPosted|placeAwaited }

// BufferInUse reports whether a transport uses the buffer.
func (r *Request) BufferInUse() bool { return r.bufferInUse() }

// Offset is the number of bytes that were posted.
func (r *Request) Offset() int { return r.off }

// Outstanding counts the posts that have not completed, plus one.
func (r *Request) Outstanding() int { return r.comp.Count }

// Text describes the state of r.
func (r *Request) Text() string {
	return fmt.Sprintln(r.flags, r.off, r.comp.Count, r.comp.Status, r.remote)
}

// RemoteID is the id of r for the peer; 0 if it has none.
func (r *Request) RemoteID() uint64 { return r.remote }

// Fetches reports whether r fetches data of the peer.
func (r *Request) Fetches() bool { return r.stage.fetches }

// UsesRendezvous reports whether the message of r was sent by rendezvous.
func (r *Request) UsesRendezvous() bool { return r.stage.announces }

// Shared reports whether r is a transfer over several lanes.
func (r *Request) Shared() bool { return r.stage.part != nil }

// OnDone calls f when r has completed.
func (r *Request) OnDone(f func(error)) {
	r.onDone = f
	r.armOnDone()
}

// CountTransfers adds n to the number of transfers of a list that have not completed.
func (r *Request) CountTransfers(n int) { recordOf[transferRecord](r).n += uint64(n) }

// AbandonWith abandons r like a blocking call whose context is done. until makes progress.
func (r *Request) AbandonWith(until func(context.Context, func() bool) error) { r.giveUp(until) }

// StatusOf returns the status of an error.
func StatusOf(err error) ucs.Status { return statusOf(err) }

// RegisterCached returns a registration of the cache, and the function that releases it.
func (w *Worker) RegisterCached(d *region.Domain, buf []byte, access uct.Access) (release func(), err error) {
	l, err := w.registerCached(d, buf, access)
	if err != nil {
		return nil, err
	}
	return l.release, nil
}

// AddressInfo returns the content of the worker's address.
func (w *Worker) AddressInfo() *wireup.Address { return w.net.addr }

// Replies are the methods of replies.
type Replies struct{ r replies }

// Sent is replies.sent.
func (x *Replies) Sent(read bool) { x.r.sent(read) }

// Wait is replies.wait, and returns the row.
func (x *Replies) Wait() int { x.r.wait(); return x.r.row }
