package ucxpeer

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucxtcp"
)

// EP is a connection to an endpoint of a worker of UCX. The goroutine that owns the worker uses it.
type EP struct {
	w         *Worker
	id        uint64 // id of the EP in messages of the peer
	remote    uint64 // id of the peer's endpoint; 0 if it is not known
	errMode   ucxwire.ErrMode
	peer      *peer
	sn        uint16
	repliesTo *peer // peer for whose replies the EP was created (peer.replyEP); nil for other EPs
	state     epState
	cause     ucs.Status
	err       error
	source    netip.Prefix // valid for an EP that a peer created and the program has not admitted
	adopted   bool         // the program has the EP: from NewEP, Dial, Listen or an active message

	lane    *ucxtcp.EP
	untried []path  // other interfaces of the peer, if lane cannot be connected
	why     []error // lanes have failed
	form    peerForm
	am      uct.AMSender
	pending uct.PendingReq
	waiting bool // pending is queued at the transport
	posting bool // flushQueue runs

	first, last *Request // queue of operations that are not posted
	control     []control
	live        *Request // list of all operations in progress
	wireupSent  bool     // a wireup request was sent

	issued, completed uint64 // operations on the peer's memory
	flushes           []*Request
	delayed           []delayedRequest // requests of the peer that wait until control is shorter
	from              *ucxtcp.Conn     // connection of the latest request for memory
	active            map[uint64]*activeInbound
	activeBytes       int
	activeRndv        int
	stream            stream
	sock              *sock // socket of the connection manager; nil if there is none
	closing           *Request
	flushed           bool // the flush of Close is complete
}

type epState uint8

const (
	epOpen epState = iota
	epClosing
	epFailed
	epClosed
)

// NewEP connects to a worker of UCX. addr is its address, from ucp_worker_get_address. NewEP returns
// before the EP is connected. Errors: ErrInvalidAddr, ErrUnreachable with the reason, ErrUnsupported for
// the address of this worker.
func (w *Worker) NewEP(addr []byte, cfg EPConfig) (*EP, error) {
	fail := func(err error) (*EP, error) { return nil, &ucs.OpError{TL: "ucx", Op: "new endpoint", Err: err} }
	if w.closed {
		return fail(ucs.ErrClosed)
	}
	a, _, err := ucxwire.DecodeAddress(addr, ucxwire.Layout{})
	if err != nil {
		return fail(fmt.Errorf("%w: %w", ucs.ErrInvalidAddr, err))
	}
	if !a.HasUUID {
		return fail(fmt.Errorf("%w: no UUID", ucs.ErrInvalidAddr))
	}
	if a.UUID == w.uuid {
		return fail(fmt.Errorf("%w: it is the address of this worker", ucs.ErrUnsupported))
	}
	paths, err := w.paths(&a)
	if err != nil {
		return fail(err)
	}
	var from []netip.AddrPort
	for _, to := range paths {
		from = append(from, to.at)
	}
	p := w.peerOf(a.UUID)
	mode := ucxwire.ErrModeNone
	if cfg.PeerErrors {
		mode = ucxwire.ErrModePeer
	}
	if e := p.unadopted(from); e != nil {
		if e.errMode != mode {
			return fail(fmt.Errorf("%w: the peer's endpoint has another error mode", ucs.ErrInvalidParam))
		}
		w.setPeerAddr(p, from)
		e.adopted, e.form = true, formOf(&a)
		e.uncountPeerEP()
		return e, nil
	}
	lane, err := w.tcp.NewEP(paths[0].params)
	if err != nil {
		w.dropPeer(p)
		return fail(err)
	}
	e := w.newEP(lane.(*ucxtcp.EP))
	e.peer, e.sn, e.errMode, e.adopted, e.untried = p, p.add(e), mode, true, paths[1:]
	e.form = formOf(&a)
	w.setPeerAddr(p, from)
	if cfg.PeerErrors {
		e.requestRemote()
	}
	return e, nil
}

// setPeerAddr records that the program has the address of a peer, which listens at the given addresses.
func (w *Worker) setPeerAddr(p *peer, ifaces []netip.AddrPort) {
	p.hasAddr, p.ifaces = true, ifaces
	w.tcp.AllowSources(ifaces)
}

// newEP returns an EP with the given lane.
func (w *Worker) newEP(lane *ucxtcp.EP) *EP {
	e := &EP{w: w, lane: lane, am: lane.Ops().AM}
	e.pending.Func = e.retry
	e.id = w.eps.Add(e)
	w.lanes[lane] = e
	w.iface.Retain()
	return e
}

// Worker returns the worker of the EP.
func (e *EP) Worker() *Worker { return e.w }

// Err returns the reason why the EP has failed; nil if it has not.
func (e *EP) Err() error { return e.err }

// Connected reports whether the peer's endpoint is known, so that operations that need its id are sent at once.
func (e *EP) Connected() bool { return e.remote != 0 && e.state == epOpen }

// start posts or queues an operation. A nil Request means that the operation is complete.
func (e *EP) start(r *Request) (*Request, error) {
	if e.state != epOpen {
		return nil, e.stateError(r.op.name)
	}
	r.ep, r.status = e, ucs.StatusInProgress
	if e.first == nil && len(e.control) == 0 && (!r.op.remote || e.remote != 0) {
		switch err := r.op.post(r); err {
		case nil:
			r.posted = true
			if r.comp.Count == 0 && !r.waits {
				e.w.recycle(r)
				return nil, nil
			}
			e.list(r)
			return r, nil
		case uct.ErrNoResource:
		default:
			if e.canTryNext() {
				break // laneFailed has not been called yet
			}
			e.failLater(err)
			return nil, e.stateError(r.op.name)
		}
	}
	e.list(r)
	if e.last == nil {
		e.first = r
	} else {
		e.last.queued = r
	}
	e.last = r
	if r.op.remote && e.remote == 0 {
		e.requestRemote()
	}
	e.sendQueued()
	return r, nil
}

// stateError returns the error of an operation on an EP that is not open.
func (e *EP) stateError(name string) error {
	err := e.err
	if err == nil {
		err = ucs.ErrClosed
	}
	return &ucs.OpError{TL: "ucx", Op: name, Err: err}
}

// unqueue removes an operation from the queue; false if it is not queued.
func (e *EP) unqueue(r *Request) bool {
	for at, before := e.first, (*Request)(nil); at != nil; before, at = at, at.queued {
		if at != r {
			continue
		}
		if before == nil {
			e.first = r.queued
		} else {
			before.queued = r.queued
		}
		if e.last == r {
			e.last = before
		}
		r.queued = nil
		return true
	}
	return false
}

func (e *EP) list(r *Request) {
	r.listed, r.next = true, e.live
	if e.live != nil {
		e.live.prev = r
	}
	e.live = r
}

func (e *EP) unlist(r *Request) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		e.live = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.listed, r.prev, r.next = false, nil, nil
}

// sendQueued sends queued messages and operations until the transport has no room.
func (e *EP) sendQueued() {
	if e.waiting || e.posting || e.state >= epFailed || e.canTryNext() && e.lane.Failed() {
		return
	}
	for e.flushQueue() == uct.ErrNoResource {
		switch err := e.lane.AddPending(&e.pending); err {
		case nil:
			e.waiting = true
			return
		case uct.ErrBusy: // the transport has room now
		default:
			e.failLater(err)
			return
		}
	}
}

// retry is called by the transport when it may have room.
func (e *EP) retry(*uct.PendingReq) error {
	if e.state >= epFailed || e.canTryNext() && e.lane.Failed() {
		e.waiting = false
		return nil
	}
	err := e.flushQueue()
	e.waiting = err == uct.ErrNoResource
	return err
}

// flushQueue sends queued messages and operations. It returns nil if nothing more can be sent. Callbacks that it runs may
// queue more.
func (e *EP) flushQueue() error {
	e.posting = true
	defer func() { e.posting = false }()
	for {
		if err := e.flushControl(); err != nil {
			return err
		}
		if err := e.flushOps(); err != nil || len(e.control) == 0 {
			return err
		}
	}
}

// flushOps sends queued operations.
func (e *EP) flushOps() error {
	for r := e.first; r != nil && (!r.op.remote || e.remote != 0); r = e.first {
		switch err := r.op.post(r); err {
		case nil:
		case uct.ErrNoResource:
			return err
		default:
			e.failLater(err)
			return nil
		}
		if e.first = r.queued; e.first == nil {
			e.last = nil
		}
		r.queued, r.posted = nil, true
		r.endIfDone()
		if e.state >= epFailed {
			return nil
		}
	}
	return nil
}

// failLater fails the EP during the next Progress, because a call that starts an operation must not complete others.
func (e *EP) failLater(err error) {
	if e.state < epFailed {
		e.w.todo = append(e.w.todo, func() { e.fail(statusOf(err), err) })
		e.w.engine.Raise()
	}
}

// failForViolation fails the EP of a peer that violates the protocol, and breaks the connection, so that the peer
// detects it. what is the object of "the peer sent".
func (e *EP) failForViolation(st ucs.Status, what string) {
	if e.state >= epFailed {
		return
	}
	e.w.stats.Malformed++
	err := ucs.Because(st, fmt.Errorf("the peer sent %s", what))
	e.failLater(err)
	c := e.w.tcp.Source()
	if c == nil {
		c = e.from
	}
	if c != nil {
		c.Drop(err)
	}
}

// fail fails the EP with all its operations, and closes its connection.
func (e *EP) fail(st ucs.Status, err error) {
	if e.state >= epFailed {
		return
	}
	e.state, e.cause, e.err = epFailed, st, ucs.EPFailed(ucs.Because(st, err))
	e.release(st, err)
	if e.closing != nil {
		e.closing.end(st, err)
	}
	if e.w.onError != nil && e.adopted {
		e.w.onError(e, e.err)
	}
}

// release ends the operations of the EP, closes its lane, and removes the EP from all tables. The caller has set the
// state.
func (e *EP) release(st ucs.Status, err error) {
	e.lane.PurgePending(func(*uct.PendingReq) {})
	e.waiting, e.first, e.last, e.control = false, nil, nil, nil
	if e.sock != nil {
		e.sock.close()
	}
	if p := e.repliesTo; p != nil {
		p.replyEP, p.lastReplyConn = nil, e.lane.Conn()
	}
	delete(e.w.lanes, e.lane)
	e.w.eps.Remove(e.id)
	if cerr := e.lane.Close(); cerr != nil && err == nil {
		err = cerr
	}
	e.w.iface.Release()
	e.dropDelayed()
	e.stream.drop()
	e.active = nil
	for e.live != nil {
		e.live.end(st, err)
	}
	e.w.dropMessages(e)
	e.uncountPeerEP()
	e.w.dropEP(e)
}

// CloseMode is the mode in which an EP is closed.
type CloseMode uint8

// Modes of closing.
const (
	// CloseFlush first completes all operations, also at the peer: it waits until the peer has matched synchronous
	// sends and rendezvous. Receives of the stream complete with StatusCanceled.
	CloseFlush CloseMode = iota
	// CloseForce closes at once. Operations complete with StatusCanceled.
	CloseForce
)

// Close closes the EP. With CloseFlush, operations that were started before complete first. No operations can be started
// after Close. Close of a failed EP has no effect. CloseForce completes the Request of an earlier CloseFlush with
// StatusCanceled.
func (e *EP) Close(mode CloseMode) (*Request, error) {
	switch {
	case e.state >= epFailed:
		e.state = epClosed
		return nil, nil
	case mode == CloseForce:
		e.state = epClosed
		e.release(ucs.StatusCanceled, nil)
		if e.closing != nil {
			e.closing.end(ucs.StatusCanceled, nil)
		}
		return nil, nil
	case e.state == epClosing:
		return e.closing, nil
	}
	r, err := e.start(e.w.request(&opClose, func(error) { e.flushed = true }))
	if err != nil {
		return nil, err
	}
	if e.flushed = e.flushed || r == nil; e.flushed && !e.hasOperations() {
		e.state = epClosed
		e.release(ucs.StatusCanceled, nil)
		return nil, nil
	}
	e.state = epClosing
	e.closing = &Request{w: e.w, op: &opClose, status: ucs.StatusInProgress}
	return e.closing, nil
}

// hasOperations reports whether an operation is in progress. Receives of the stream do not count: they wait for the peer.
func (e *EP) hasOperations() bool {
	for r := e.live; r != nil; r = r.next {
		if r.op != &opStreamRecv {
			return true
		}
	}
	return false
}

// onlyFlushes reports whether the EP closes and only the flush of Close is in progress, which does not need the peer's
// endpoint.
func (e *EP) onlyFlushes() bool {
	if e.state != epClosing || e.completed < e.issued {
		return false
	}
	for r := e.live; r != nil; r = r.next {
		if r.op != &opClose && r.op != &opStreamRecv {
			return false
		}
	}
	return true
}

// closeIfIdle completes a close, during the next Progress, if all operations are complete. The flush alone is not
// sufficient, because it does not wait for messages that the peer has not matched.
func (e *EP) closeIfIdle() {
	if e.state == epClosing && e.flushed && !e.hasOperations() {
		e.w.todo = append(e.w.todo, e.closed)
		e.w.engine.Raise()
	}
}

// closed completes a close.
func (e *EP) closed() {
	r := e.closing
	if e.state == epClosing {
		e.state = epClosed
		e.release(ucs.StatusCanceled, nil)
	}
	r.end(ucs.StatusOK, nil)
}

// Flush returns a Request that completes when all operations that were started before have reached the peer: its process
// has received all bytes that were sent, and its memory has changed. As in UCX, whose flush is for operations on memory, it
// does not wait until the peer has matched messages: a synchronous send or a rendezvous may still be in progress when the
// flush completes, without its data sent. Wait for their Requests, or use Close.
func (e *EP) Flush() (*Request, error) { return e.start(e.w.request(&opFlush, nil)) }

var (
	opFlush = op{name: "flush"}
	opClose = op{name: "close"}
)

func init() { opFlush.post, opClose.post = postFlush, postFlush }

// postFlush flushes the lane, and then waits for the outstanding replies of the peer.
func postFlush(r *Request) error {
	e := r.ep
	r.comp.Count++
	pending, err := e.lane.Flush(&r.comp)
	if !pending || err != nil {
		r.comp.Count--
	}
	if err != nil {
		return err
	}
	if e.completed < e.issued {
		r.waits, r.arg = true, e.issued
		e.flushes = append(e.flushes, r)
	}
	return nil
}

// remoteCompleted counts an operation on the peer's memory that is complete, and completes flushes.
func (e *EP) remoteCompleted() {
	if e.completed == e.issued {
		e.failForViolation(ucs.StatusRemoteInvalid, "a completion without an operation")
		return
	}
	e.completed++
	done := 0
	for _, r := range e.flushes {
		if r.arg > e.completed {
			break
		}
		done++
	}
	ended := e.flushes[:done]
	e.flushes = slices.Clone(e.flushes[done:])
	for _, r := range ended {
		r.waits = false
		r.endIfDone()
	}
}
