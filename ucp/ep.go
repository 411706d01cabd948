package ucp

import (
	"fmt"

	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// EP is a connection to one peer worker. It belongs to the goroutine that owns the
// worker. NewEP sends no message and opens no transport endpoint; the first operation that needs a lane
// connects.
//
// Operations return (nil, nil) when they are complete: the buffer belongs to the
// caller again. Otherwise they return a [Request], or an error, which means that
// the operation had no effect.
type EP struct {
	w    *Worker
	peer *conn.Peer
	link *link // nil until an operation needs a lane

	ops     requestList // operations in progress, in the order of their start
	awaited requestList // requests that wait for a message of the peer
	waiting *waiting    // requests that wait for a lane, for credit or behind a fence; nil until the first
	keys    *RKey       // keys that are bound to this EP

	retainedIfaces *[]*iface // ifaces of closed lanes that may still have operations; nil if there are none
	implicit       *implicit // nil until the first implicit operation
	msgs           *messages // nil until the first message

	id     uint64
	seq    uint32
	counts opCounts

	state     epState
	scheduled bool // in Worker.todo.deferred
	roles     epRoles
	origin    epOrigin
	fence     epFence
	failed    epFailure
	closing   epClose
	onError   func(*EP, error)

	identity *Identity // identity of the peer, if a socket has shown it; otherwise nil
}

// opCounts counts operations in progress.
type opCounts struct {
	direct   int32 // not in EP.ops; see placeDirect
	unposted int32 // not posted completely, or with several steps
}

// epRoles are roles of lanes, and what the lane of messages permits now.
type epRoles struct {
	needed handshake.Roles // roles to connect in the next Progress
	pinned handshake.Roles // roles whose lanes cannot be replaced: losses on them cannot be detected
	// atOnce is the length in bytes below which one call sends a message without OpParams.Flags: at most messages.maxShort + 1
	// and messages.maxWord + 1. 0 while none may be sent so, and if EP.msgs is nil: the fast paths need no other check.
	atOnce uint16
}

// epOrigin is which side made the EP, and what this side therefore knows about the peer.
type epOrigin struct {
	countedAsMade bool // made by the peer, and not returned by NewEP yet: counted in Worker.names
	accepted      bool // the peer has made the connection; also after NewEP has returned the EP
	passive       bool // made by a REQUEST of the peer; no user has it
	unproven      bool // a dialer has the id of the EP, and has not proven yet that it is the peer
	unverified    bool // the addresses of the peer are from the peer and not from the program
	adopted       bool // was passive until NewEP returned it, and has not been used since
}

// epFence is the state of fences that wait for operations to complete.
type epFence struct {
	barrier *Request // the fence that operations wait behind
	count   int32
}

// epFailure is the reason why the EP has failed.
type epFailure struct {
	err            *Error     // what Err returns
	cause          ucs.Status // the status of failed operations
	peerUninformed bool       // the peer must be notified: no transport reports the failure to it
}

// epClose is the state of Close and abort.
type epClose struct {
	request  *Request   // request of the caller's Close
	mode     CloseMode  // mode of a Close that was deferred
	later    bool       // a Packer has called Close: the next Progress closes the EP
	ending   bool       // the EP must be destroyed when no operation uses it
	notifies bool       // the peer must be notified before that
	aborting ucs.Status // the status with which operations in progress fail; OK if they are not aborted
}

// epState is the state of an EP. It only increases.
type epState uint8

const (
	epOpen epState = iota
	epClosing
	epFailed
	epClosed
)

// NewEP makes an endpoint to the worker with this address. It copies addr,
// which may come from an untrusted peer. It sends nothing and opens no transport endpoint
// before the first operation, unless Config.Connect is eager. With the address of w
// itself the EP is a loop-back: its messages and streams arrive on the same EP. Errors: ErrInvalidAddr;
// ErrUnreachable, with the criteria that failed, if the workers have no usable transport in common; ErrClosed.
func (w *Worker) NewEP(addr []byte, cfg EPConfig) (*EP, error) {
	if w.closed {
		return nil, &Error{Op: "new endpoint", Err: ucs.ErrClosed}
	}
	p, err := w.peers.Find(addr)
	if err != nil {
		return nil, &Error{Op: "new endpoint", Err: err}
	}
	if !p.Reachable() {
		w.peers.Unused(p)
		err := fmt.Errorf("%w: %s", ucs.ErrUnreachable, w.unreachable(wireup.RMA, p.Addr))
		return nil, &Error{Op: "new endpoint", Peer: p.Addr.UUID(), Err: err}
	}
	e := w.adopt(p)
	if e == nil {
		e = w.addEP(p, w.names.Take(p.Addr.UUID()))
	}
	e.onError = cfg.OnError
	e.connectEagerly()
	return e, nil
}

// connectEagerly requests all lanes now if Config.Connect is eager.
func (e *EP) connectEagerly() {
	if e.w.ctx.cfg.Connect != ConnectEager {
		return
	}
	for _, role := range []wireup.Role{wireup.RMA, wireup.AMO, wireup.AM} {
		if e.peer.Best[role].OK {
			e.requestLane(role)
		}
	}
}

// addEP makes an EP and adds it to the worker's tables.
func (w *Worker) addEP(p *conn.Peer, seq uint32) *EP {
	e := &EP{w: w, peer: p, seq: seq}
	w.addPeerRef(e)
	w.names.Enter(p.Addr.UUID(), seq, e)
	return e
}

// addPeerRef adds a reference to the peer and assigns the EP's id. destroy undoes both.
func (w *Worker) addPeerRef(e *EP) {
	w.peers.Hold(e.peer)
	w.names.Hold(e.peer.Addr.UUID())
	e.id = w.eps.Add(e)
}

// countMade adds the EP to the count of EPs that its peer has made, or subtracts it.
func (e *EP) countMade(made bool) {
	if e.origin.countedAsMade == made {
		return
	}
	e.origin.countedAsMade = made
	d := -1
	if made {
		d, e.origin.accepted = 1, true
	}
	e.w.names.CountMade(e.peer.Addr.UUID(), d)
}

// hasTooManyEPs reports whether a peer has reached its limit of EPs.
func (w *Worker) hasTooManyEPs(p *conn.Peer) bool {
	return w.names.Made(p.Addr.UUID()) >= w.ctx.cfg.maxEPsPerPeer()
}

// Worker is the worker of the EP.
func (e *EP) Worker() *Worker { return e.w }

// Err returns nil while the EP accepts operations. Afterwards it returns an error that wraps
// ErrEPFailed and the reason, or ErrClosed.
func (e *EP) Err() error {
	switch e.state {
	case epOpen:
		return nil
	case epFailed:
		return e.failed.err
	default:
		return errClosed
	}
}

var errClosed = fmt.Errorf("ucp: endpoint: %w", ucs.ErrClosed)

// Connected reports whether the EP has a lane for put and get. It makes no progress.
func (e *EP) Connected() bool { return e.lane(wireup.RMA) != nil }

// Established reports whether the EP has a lane for messages: the handshake is complete, and the peer needs
// no further progress of this side for it. It makes no progress.
func (e *EP) Established() bool { return e.lane(wireup.AM) != nil }

// lane returns the active lane of a role, or nil.
func (e *EP) lane(p wireup.Role) *lane {
	if e.link == nil {
		return nil
	}
	return e.link.lanes.Use[p]
}

// list adds a request as the newest operation of the EP.
func (e *EP) list(r *Request) {
	r.flags |= placeListed
	e.ops.add(r)
	if s := &e.w.stats.spans; s.measures() {
		s.beginOperation(r)
	}
}

// unlist removes a complete operation. If the oldest operation is now a flush, it starts the flush.
func (e *EP) unlist(r *Request) {
	r.moveTo(placeNone)
	e.ops.remove(r)
	switch f := e.ops.first; {
	case f == nil:
		e.onIdle()
	case f.stage.first != nil:
		f.stage.first(f)
	}
}

// busy reports whether operations are in progress.
func (e *EP) busy() bool {
	return e.ops.first != nil || e.counts.direct > 0 || e.implicit.inFlight() || e.awaited.first != nil
}

// onIdle is called when the last operation in progress may be complete.
func (e *EP) onIdle() {
	if !e.busy() && (e.retainedIfaces != nil || e.closing.ending) {
		e.releaseRetainedIfaces()
	}
}

// retainIface makes the engine poll the iface of a closed lane while operations are in progress.
func (e *EP) retainIface(i *iface) {
	if e.retainedIfaces == nil {
		e.retainedIfaces = new([]*iface)
	}
	*e.retainedIfaces = append(*e.retainedIfaces, i)
}

// releaseRetainedIfaces is called when no operation is in progress: it releases the ifaces of closed lanes, and
// schedules the EP if it waits to be destroyed.
func (e *EP) releaseRetainedIfaces() {
	if e.retainedIfaces != nil {
		for _, i := range *e.retainedIfaces {
			i.Release()
		}
		e.retainedIfaces = nil
	}
	if e.closing.ending {
		e.w.schedule(e)
	}
}

// requestLane requests a lane, which Progress connects.
func (e *EP) requestLane(p wireup.Role) {
	e.roles.needed |= handshake.Set(p)
	e.w.schedule(e)
}

// wait queues a request until its lane is active and no fence blocks it.
func (e *EP) wait(r *Request) {
	r.flags |= reqWaiting
	r.trackUnposted()
	e.enqueueWaiting(r)
	if r.stage.lacksLane(e) {
		e.requestLane(r.stage.role)
	}
}

// markUsed records that the user has used an adopted EP. From then on it cannot start over.
func (e *EP) markUsed() {
	if e.origin.adopted {
		e.origin.adopted = false
		e.bind()
	}
}

// startOver disconnects an adopted EP that was not used yet. The user does not see that the peer
// has closed its EP.
func (e *EP) startOver() {
	e.w.removeEP(e)
	e.abort(ucs.StatusPeerClosed) // replies to the peer
	e.link.carrier.Close()
	e.link.releaseCarrier()
	e.each(func(p *protocol) func(*EP) { return p.destroyed })
	e.w.dropLink(e.link)
	e.each(func(p *protocol) func(*EP) { return p.startedOver })
	e.link, e.roles.pinned, e.closing.aborting, e.origin.adopted = nil, 0, ucs.StatusOK, false
	e.seq = e.w.names.Take(e.peer.Addr.UUID())
	e.w.names.Enter(e.peer.Addr.UUID(), e.seq, e)
}

// fail fails the EP for a reason, from transport i if that is not nil: every lane is closed,
// and every operation completes as soon as its transport has stopped using it. The user must then close
// the EP.
func (e *EP) fail(st ucs.Status, reason error, i *iface) {
	e.markFailed(st, reason, i)
	e.closeFailed()
}

// markFailed makes the EP reject operations with the reason. A callback of a transport may call it.
// closeFailed does the rest, in the next Progress at the latest.
func (e *EP) markFailed(st ucs.Status, reason error, i *iface) {
	if e.state >= epFailed || e.closing.ending {
		return
	}
	e.state = epFailed
	e.setFailureCause(st, reason, i)
	e.unbind()
	e.w.removeEP(e)
	e.w.schedule(e)
}

// setFailureCause records the reason why the EP has failed.
func (e *EP) setFailureCause(st ucs.Status, reason error, i *iface) {
	e.failed.cause, e.failed.peerUninformed = st, i != nil && !handshake.PeerGone(st)
	e.failed.err = &Error{Op: "endpoint", Peer: e.peer.Addr.UUID(), Via: i.String(), Err: i.cause(reason), failed: true}
}

// onlyClosed reports whether the EP has failed because a transport reported that the peer has closed it,
// and OnError was not called yet: the peer's own reason may still arrive before that.
func (e *EP) onlyClosed() bool {
	return e.state == epFailed && e.failed.cause == ucs.StatusPeerClosed && e.closing.aborting == ucs.StatusOK
}

// closeFailed closes the lanes of a failed EP, and calls OnError.
func (e *EP) closeFailed() {
	if e.state != epFailed || e.closing.aborting != ucs.StatusOK {
		return
	}
	if e.failed.cause == ucs.StatusPeerClosed { // no other reason can arrive any more
		e.w.stats.leftPeers.Inc()
	} else {
		e.w.stats.failedEPs.Inc()
	}
	if l := e.link; l != nil && (e.failed.peerUninformed || l.connecting()) {
		e.handle(handshake.Event{Kind: handshake.Closed, Status: e.failed.cause})
	}
	onError := e.onError // destroy drops it
	e.abort(e.failed.cause)
	if e.origin.passive || e.closing.request != nil {
		e.destroyWhenIdle()
	}
	if onError != nil {
		onError(e, e.failed.err)
	}
}

// abort fails every operation with st and closes the lanes.
func (e *EP) abort(st ucs.Status) {
	e.closing.aborting = st
	e.unbind()
	e.endEach(st, func(p *protocol) func(*EP, ucs.Status) { return p.lanesClosing })
	queue := e.takeWaiting()
	e.fence.barrier = nil
	for _, r := range queue {
		r.flags &^= reqWaiting
		r.complete(st)
	}
	if e.link != nil {
		e.link.purge()
		e.link.endAllMoves()
		e.link.closeLanes()
		e.link.endUndecided(st)
	}
	e.endAnswered(st)
	e.endAwaited(st)
	e.each(func(p *protocol) func(*EP) { return p.lanesClosed })
	e.endEach(st, func(p *protocol) func(*EP, ucs.Status) { return p.incomingLost })
	e.endEach(st, func(p *protocol) func(*EP, ucs.Status) { return p.aborted })
}

// endAnswered fails the atomics that wait for a reply of the peer, which can no longer arrive. The
// other operations are at transports, or are flushes that wait for those.
func (e *EP) endAnswered(st ucs.Status) {
	var waiting []*Request
	for r := e.ops.first; r != nil; r = r.next {
		if r.remote != 0 && (r.flags&reqPosted != 0 || e.closing.aborting != ucs.StatusOK) {
			waiting = append(waiting, r)
		}
	}
	for _, r := range waiting {
		r.comp.Complete(st)
	}
}

// laneOf returns the lane of a transport endpoint, or nil.
func (e *EP) laneOf(ep uct.EP) *lane {
	if e.link == nil {
		return nil
	}
	return e.link.lanes.Of(ep)
}

// CloseMode determines what Close does with operations in progress.
type CloseMode uint8

// Close modes.
const (
	CloseFlush CloseMode = iota // Close waits until they are complete
	CloseForce                  // they fail with ErrCanceled
)

// closeStage is the stage of the caller's Close, which completes with the EP.
var closeStage = stage{name: "close", role: noRole}

// Close closes the connection and notifies the peer, whose EP then fails with ErrPeerClosed. The EP
// accepts no further operations. The request completes when every operation is complete and the
// notification was sent, even if the peer has not received it; or when the peer has
// received nothing for Config.WireupTimeout. A nil request means that the EP is closed. Closing
// an EP that has failed always succeeds. A second Close returns ErrClosed, except for CloseForce after
// a CloseFlush with operations in progress: it aborts them and completes both requests. If a
// [Packer] calls Close, it begins when the Packer has returned.
//
// CloseFlush of a loop-back EP does not wait for receives that are not posted: eager messages can
// be received later, by tag; unread stream data is discarded; other sends complete as if a peer had closed
// its EP. The goroutine that owns the worker must call Close, also in callbacks.
func (e *EP) Close(mode CloseMode) (*Request, error) {
	forced := e.closing.later && e.closing.mode == CloseForce
	if e.state == epClosing && !e.closing.ending && mode == CloseForce && !forced {
		return e.closeAnyway()
	}
	if e.closing.ending || e.closing.later || e.state == epClosing || e.state == epClosed {
		return nil, errClosed
	}
	r := e.w.newRequest(e, &closeStage)
	e.closing.request = r
	if e.w.packing {
		e.closeLater(mode)
	} else {
		e.close(mode)
	}
	return r.started()
}

// closeLater makes the EP reject operations. The next Progress does the rest of Close:
// while a Packer runs, a transport uses the lane for its message.
func (e *EP) closeLater(mode CloseMode) {
	e.closing.later, e.closing.mode = true, mode
	if e.state == epOpen {
		e.state = epClosing
	}
	e.unbind()
	e.w.schedule(e)
}

// closePostponed does the rest of closeLater.
func (e *EP) closePostponed() {
	if e.closing.later {
		e.closing.later = false
		e.close(e.closing.mode)
	}
}

// close is Close without checks.
func (e *EP) close(mode CloseMode) {
	switch {
	case e.state == epFailed:
		e.closeFailed()
		if !e.closing.ending {
			e.destroyWhenIdle()
		}
	case mode == CloseForce:
		e.abortAndDisconnect()
	default:
		e.each(func(p *protocol) func(*EP) { return p.flushes })
		e.stop()
		e.disconnectWhenIdle()
	}
}

// closeAnyway is CloseForce while an earlier Close waits for operations.
func (e *EP) closeAnyway() (*Request, error) {
	r := e.w.newRequest(e, &closeStage)
	e.closing.request.parent = r
	if e.w.packing {
		e.closeLater(CloseForce)
		return r, nil
	}
	e.closing.later = false
	e.abortAndDisconnect()
	return r.started()
}

// stop makes the EP reject new operations.
func (e *EP) stop() {
	e.state = epClosing
	e.w.removeEP(e)
	e.unbind()
	e.each(func(p *protocol) func(*EP) { return p.stopped })
	if e.deliversLast() {
		e.w.schedule(e) // for protocol.discard
		return
	}
	e.endEach(ucs.StatusCanceled, func(p *protocol) func(*EP, ucs.Status) { return p.incomingLost })
}

// disconnectWhenIdle disconnects the EP when the operations in progress are complete.
func (e *EP) disconnectWhenIdle() {
	r := e.w.newRequest(e, &drainStage)
	e.list(r)
	r.Release()
	if e.ops.first == r {
		r.flushStart()
	}
}

// abortAndDisconnect aborts the operations in progress, and disconnects.
func (e *EP) abortAndDisconnect() {
	e.stop()
	e.abort(ucs.StatusCanceled)
	e.disconnectAndDestroy()
}

// disconnectAndDestroy disconnects the EP. It first notifies the peer if the peer may know the connection.
func (e *EP) disconnectAndDestroy() {
	e.closing.notifies = e.link != nil
	e.destroyWhenIdle()
}

// canDestroy reports whether a closing EP can be destroyed: it has no operation and no message to send.
func (e *EP) canDestroy() bool {
	return !e.busy() && !e.closing.notifies && (e.link == nil || e.link.carrier.Idle())
}

// destroyWhenIdle destroys the EP, at once or when its last operation is complete and its last message was
// sent.
func (e *EP) destroyWhenIdle() {
	e.closing.ending = true
	if e.canDestroy() {
		e.destroy()
		return
	}
	e.implicit.await()
	e.w.schedule(e)
	if e.link == nil {
		return
	}
	if limit := e.w.ctx.cfg.wireupTimeout(); limit > 0 {
		e.link.disconnectDeadline = e.w.engine.Alarm.Now() + limit
		e.w.engine.Alarm.Set(e.link.disconnectDeadline)
	}
}

// disconnect notifies the peer that the EP is closed. It is called after the replies that waited
// for room were sent: the notification may use another lane.
func (e *EP) disconnect() {
	e.closing.notifies = false
	e.handle(handshake.Event{Kind: handshake.Closed})
}

// destroy removes the EP from the worker, and completes the caller's Close if no operation is
// left; otherwise Close completes with the last of them.
func (e *EP) destroy() {
	if e.state == epClosed {
		return
	}
	e.state = epClosed
	e.w.removeEP(e)
	e.unbind()
	e.each(func(p *protocol) func(*EP) { return p.destroyed })
	if e.link != nil {
		e.dropAnswers()
		e.link.closeLanes()
		e.link.carrier.Close()
		e.link.releaseCarrier()
		e.w.dropLink(e.link)
		e.link = nil
	}
	e.w.eps.Remove(e.id)
	e.countMade(false)
	e.w.names.Drop(e.peer.Addr.UUID())
	e.w.peers.Drop(e.peer)
	e.onError = nil
	e.finishClose()
}

// finishClose completes the caller's Close when no operation is at a transport any more. The EP
// remains in the worker until the notification was sent.
func (e *EP) finishClose() {
	if e.link != nil {
		e.dropAnswers()
		e.link.closeLanes()
	}
	if r := e.closing.request; r != nil && !e.busy() {
		e.closing.request = nil
		r.complete(ucs.StatusOK)
	}
}

// dropAnswers drops the replies to the peer that wait for resources of a lane that is about to close:
// the peer has received nothing for too long, or has disconnected.
func (e *EP) dropAnswers() {
	if e.link.answers > 0 && e.closing.aborting == ucs.StatusOK {
		e.abort(ucs.StatusCanceled)
	}
}

// EPConfig configures an [EP]. The zero value is the default.
type EPConfig struct {
	// OnError is called once when the EP has failed, from Worker.Progress or from an
	// operation on the EP. It may start operations on other EPs and must not call
	// Progress.
	OnError func(ep *EP, err error)
}

// answerDue counts a reply that waits for resources of the lane. At conn.MaxReplies the EP fails, because the peer
// receives no replies.
func (e *EP) answerDue() {
	if e.link.answers++; e.link.answers == conn.MaxReplies {
		e.markFailed(ucs.StatusRNR, fmt.Errorf("%w: the peer receives no replies", ucs.ErrRNR), e.link.lanes.Via[wireup.AM])
	}
}

// answered is called when a reply was sent or dropped. If the reply had to wait, answerDue has counted it and
// its request is released.
func (r *Request) answered() {
	e := r.ep
	if r.flags&reqReleased == 0 || e.link == nil {
		return
	}
	if e.link.answers--; e.closing.notifies {
		e.w.schedule(e)
	}
}
