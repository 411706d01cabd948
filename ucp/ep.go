package ucp

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// EP is a connection to one peer worker. It belongs to the goroutine that owns the
// worker. Until an operation needs a lane it is a few words of memory: making one
// sends nothing and opens nothing.
//
// Operations return (nil, nil) when nothing more is to be done: the buffer is the
// caller's again. Otherwise they return a [Request], or an error that says that
// the operation was refused and had no effect.
type EP struct {
	w    *Worker
	peer *peer
	link *link // nil until an operation needed a lane

	first, last *Request   // operations in progress, in the order of issue
	waiting     []*Request // those that wait for a lane, or behind a fence
	keys        *RKey      // keys that are bound to this EP

	id     uint64
	seq    uint32
	loose  int // operations that are not posted completely, or take several steps
	fences int // fences that wait for operations to complete

	barrier *Request // the fence that operations wait behind

	state     epState
	passive   bool            // made by a peer's REQUEST; no user holds it
	adopted   bool            // was passive, and its user has not used it yet
	replaying bool            // in replay
	again     bool            // replay has more to do
	choring   bool            // in Worker.chores
	ending    bool            // to be destroyed when the auxiliary lane is idle
	departing bool            // the peer is to be told first
	needs     wireup.Purposes // lanes to connect at the next progress
	cause     ucs.Status      // why the EP failed
	aborting  ucs.Status      // set when operations in progress are to end with it
	closing   *Request        // the request of Close
	err       error
	onError   func(*EP, error)
}

// epState is how far an EP has come. It only grows.
type epState uint8

const (
	epOpen epState = iota
	epClosing
	epFailed
	epClosed
)

// NewEP makes an endpoint to the worker whose address this is. It copies addr,
// which may come from a stranger. Nothing is sent and no transport endpoint is
// opened before the first operation, unless Config.Connect says eager. Errors:
// ErrInvalidAddr; ErrUnreachable, with the criteria that failed, if no transport
// of both sides can carry anything; ErrClosed.
func (w *Worker) NewEP(addr []byte, cfg EPConfig) (*EP, error) {
	if w.closed {
		return nil, fmt.Errorf("ucp: new endpoint: %w", ucs.ErrClosed)
	}
	p, err := w.findPeer(addr)
	if err != nil {
		return nil, fmt.Errorf("ucp: new endpoint: %w", err)
	}
	if !p.reachable() {
		w.unusedPeer(p)
		return nil, fmt.Errorf("ucp: new endpoint: %w\n%s", ucs.ErrUnreachable, w.explain(p.addr))
	}
	e := w.adopt(p)
	if e == nil {
		e = w.addEP(p, w.takeSeq(p.addr.UUID))
	}
	e.onError = cfg.OnError
	if w.ctx.cfg.Connect == ConnectEager {
		for purpose := range wireup.Aux {
			if p.best[purpose].ok {
				e.need(purpose)
			}
		}
	}
	return e, nil
}

// addEP makes an EP and enters it in the worker's tables.
func (w *Worker) addEP(p *peer, seq uint32) *EP {
	e := &EP{w: w, peer: p, seq: seq}
	p.refs++
	e.id = w.eps.add(e)
	w.bySeq[connSeq{p.addr.UUID, seq}] = e
	return e
}

// Worker is the worker that the EP was made from.
func (e *EP) Worker() *Worker { return e.w }

// Err is nil, or why the EP takes no more operations: an error that wraps
// ErrEPFailed and the reason, or ErrClosed.
func (e *EP) Err() error {
	switch e.state {
	case epOpen:
		return nil
	case epFailed:
		return e.err
	default:
		return errClosed
	}
}

var errClosed = fmt.Errorf("ucp: endpoint: %w", ucs.ErrClosed)

// Connected reports whether put and get have a lane. It makes no progress.
func (e *EP) Connected() bool { return e.lane(wireup.RMA) != nil }

// lane is the lane that is active for a purpose, or nil.
func (e *EP) lane(p wireup.Purpose) *lane {
	if e.link == nil {
		return nil
	}
	return e.link.use[p]
}

// list enters a request as the latest operation of the EP.
func (e *EP) list(r *Request) {
	r.flags |= reqListed
	r.prev, r.next = e.last, nil
	if e.last == nil {
		e.first = r
	} else {
		e.last.next = r
	}
	e.last = r
}

// unlist removes an operation that has ended, and starts a flush that waited for
// it.
func (e *EP) unlist(r *Request) {
	r.flags &^= reqListed
	if r.prev == nil {
		e.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		e.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.next, r.prev = nil, nil
	if f := e.first; f != nil && f.kind.flushes() {
		f.flushStart()
	}
}

// need asks for a lane at the next progress.
func (e *EP) need(p wireup.Purpose) {
	e.needs |= wireup.Set(p)
	e.w.addChore(e)
}

// wait keeps a request until its lane is active and no fence is in the way.
func (e *EP) wait(r *Request) {
	r.flags |= reqWaiting
	r.loosen()
	e.waiting = append(e.waiting, r)
	if p, ok := r.purpose(); ok && e.lane(p) == nil {
		e.need(p)
	}
}

func (e *EP) dropWaiting(r *Request) {
	for i, x := range e.waiting {
		if x == r {
			e.waiting = append(e.waiting[:i], e.waiting[i+1:]...)
			r.flags &^= reqWaiting
			return
		}
	}
}

// replay starts the waiting requests that can go on now, in order. What that brings
// about (an inline completion may end a fence) is seen to before it returns.
func (e *EP) replay() {
	e.again = true
	if e.replaying {
		return
	}
	e.replaying = true
	for e.again {
		e.again = false
		e.replayOnce()
		if b := e.barrier; b != nil && e.first == b {
			b.flushStart()
		}
	}
	e.replaying = false
}

func (e *EP) replayOnce() {
	queue := e.waiting
	e.waiting = nil
	closed := e.barrier != nil // a fence that is not over: what comes later stays
	for _, r := range queue {
		switch {
		case closed && r.kind != opAnswer:
			e.waiting = append(e.waiting, r)
		case r.kind == opFence && len(e.waiting) > 0: // behind what has no lane yet
			closed = true
			e.waiting = append(e.waiting, r)
		case r.kind == opFence:
			closed = true
			r.flags &^= reqWaiting
			e.barrier = r
		default:
			r.flags = r.flags&^reqWaiting | reqAhead
			r.launch()
		}
	}
}

// startOver makes an EP that took over the peer's connection, and was not used yet,
// one that is not connected: that the peer has closed its EP is nothing to its user.
func (e *EP) startOver() {
	e.w.forget(e)
	e.abort(ucs.StatusConnReset) // answers to the peer
	e.link.aux.close()
	e.link, e.aborting, e.adopted = nil, ucs.StatusOK, false
	e.seq = e.w.takeSeq(e.peer.addr.UUID)
	e.w.bySeq[connSeq{e.peer.addr.UUID, e.seq}] = e
}

// fail ends the EP for a reason: every operation ends, every lane is closed. What
// the user holds is then only to be closed; the rest goes by itself.
func (e *EP) fail(st ucs.Status, reason error) {
	if e.state >= epFailed {
		return
	}
	e.w.stats.failedEPs.Inc()
	e.cause = st
	e.err = fmt.Errorf("ucp: %w: %w", ucs.ErrEPFailed, reason)
	closing := e.state == epClosing
	e.state = epFailed
	e.abort(st)
	e.w.forget(e)
	if e.passive || closing {
		e.end()
	}
	if e.onError != nil {
		e.onError(e, e.err)
	}
}

// abort ends every operation with st and closes the lanes.
func (e *EP) abort(st ucs.Status) {
	e.aborting = st
	e.unbindKeys()
	queue := e.waiting
	e.waiting, e.barrier = nil, nil
	for _, r := range queue {
		r.flags &^= reqWaiting
		r.settle(st)
	}
	if e.link != nil {
		e.link.purge()
		e.link.closeLanes()
	}
	if r := e.closing; r != nil && r.flags&reqListed != 0 {
		e.unlist(r) // it ends with the EP
	}
	for e.first != nil { // answers that will not come
		e.first.settle(st)
	}
}

// blame turns the status of an operation that ended because its EP did into the
// reason why.
func (e *EP) blame(st ucs.Status) ucs.Status {
	if e.state == epFailed && e.cause != ucs.StatusOK && st == ucs.StatusCanceled {
		return e.cause
	}
	return st
}

// CloseMode says what becomes of operations in progress when an EP is closed.
type CloseMode uint8

// Close modes.
const (
	CloseFlush CloseMode = iota // they complete first
	CloseForce                  // they end with StatusCanceled
)

// Close ends the connection and tells the peer, whose EP then fails with
// ErrConnReset. The EP takes no more operations from now on. The request ends when
// the notice is on its way, or the peer has taken nothing for Config.WireupTimeout;
// the peer need not take it. A nil request says
// that it is closed already. Closing an EP that has failed always succeeds, and
// closing twice is ErrClosed.
func (e *EP) Close(mode CloseMode) (*Request, error) {
	if e.ending || e.state == epClosing || e.state == epClosed {
		return nil, errClosed
	}
	if e.state == epFailed {
		e.end()
		return nil, nil
	}
	e.state = epClosing
	e.w.forget(e)
	e.unbindKeys()
	r := e.w.newRequest(e, opClose)
	e.closing = r
	if mode == CloseForce {
		e.abort(ucs.StatusCanceled)
		e.closeFlushed()
		return r.started()
	}
	e.list(r)
	if e.first == r {
		r.flushStart()
	}
	return r.started()
}

// closeFlushed goes on with Close when no operation is left: the peer is told.
func (e *EP) closeFlushed() {
	if r := e.closing; r.flags&reqListed != 0 {
		e.unlist(r)
	}
	e.departing = e.link != nil
	e.end()
}

// end destroys the EP, at once or when its last message is out.
func (e *EP) end() {
	e.ending = true
	if e.link == nil || !e.departing && e.link.aux.idle() {
		e.destroy()
		return
	}
	e.w.addChore(e)
	if limit := e.w.ctx.cfg.wireupTimeout(); limit > 0 {
		e.link.farewell = e.w.alarm.now() + limit
		e.w.alarm.set(e.w, e.link.farewell)
	}
}

// depart tells the peer that the EP is closed, if it knows of it.
func (e *EP) depart() {
	e.departing = false
	e.handle(wireup.Event{Kind: wireup.Closed})
}

// destroy takes the EP out of the worker and ends the close request.
func (e *EP) destroy() {
	if e.state == epClosed {
		return
	}
	e.state = epClosed
	e.w.forget(e)
	e.unbindKeys()
	if e.link != nil {
		e.link.closeLanes()
		e.link.aux.close()
		e.link = nil
	}
	e.w.eps.remove(e.id)
	e.w.dropPeer(e.peer)
	e.finishClose()
}

// finishClose ends the user's Close: the lanes are gone and the peer's notice is on
// its way. The EP stays in the worker until that has arrived.
func (e *EP) finishClose() {
	if e.link != nil {
		e.link.closeLanes()
	}
	if r := e.closing; r != nil {
		e.closing = nil
		r.settle(ucs.StatusOK)
	}
}

// refusal is the error of an operation on an EP that takes none, or with a key
// that is not this EP's.
func (e *EP) refusal(key *RKey) error {
	if e.state != epOpen {
		return e.Err()
	}
	if key != nil && key.ep != e {
		return fmt.Errorf("ucp: key of another endpoint, or closed: %w", uct.ErrInvalidRKey)
	}
	return nil
}
