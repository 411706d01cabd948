package ucp

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// A lane that breaks loses its roles, here and at the peer, and the next best pair of
// transports replaces it. Operations that were not posted to it move to the new lane. Operations that were posted
// fail with the reason, and the next flush reports it: puts without a request may
// be lost. A role without a lane is lost: operations that need it fail with the
// reason (lostrole.go). The EP fails with the reason if it has no useful lane left,
// or none for messages, and immediately if the peer has closed or died.

// peerGone reports whether err means that the peer has closed or died. Any other error concerns one lane, also
// ErrUnreachable: another network device may reach the peer.
func peerGone(err error) bool {
	return errors.Is(err, ucs.ErrConnReset) || errors.Is(err, ucs.ErrPeerClosed)
}

// fatal reports whether the failure of a lane for this reason fails the EP.
func (l *link) fatal(x *lane, err error) bool {
	return !l.onTrial(x) && (peerGone(err) || x.Connected && !l.survives(x))
}

// pinned reports whether a lane cannot be replaced.
func (l *link) pinned(x *lane) bool {
	return l.e.roles.pinned.Has(wireup.AM) && (l.lanes.Use[wireup.AM] == x || l.isMovingAM(x))
}

// survives reports whether the EP continues if a lane breaks.
func (l *link) survives(x *lane) bool {
	return l.e.state == epOpen && !(x.Connected && l.pinned(x)) && l.conn.Survives(l.lanes.Index(x))
}

// laneBroke handles a lane whose transport endpoint failed.
func (e *EP) laneBroke(x *lane, err error) {
	l := e.link
	if !l.onTrial(x) && (e.state != epOpen || l.fatal(x, err)) {
		e.fail(statusOf(err), err, x.Iface)
		return
	}
	x.Failed = err
	e.handle(handshake.Event{Kind: handshake.LaneFailed, Lane: l.lanes.Index(x), Status: statusOf(err)})
}

// peerStatusErr returns the error of a lane that the peer has rejected or dropped with a status. A lack of resources
// at the peer has an error of its own.
func peerStatusErr(st ucs.Status) error {
	if st == ucs.StatusNoMemory {
		return fmt.Errorf("%w, says the peer: its device or process has as many connections (QPs, descriptors) as it can have, or no memory", st.Err())
	}
	return fmt.Errorf("%w, says the peer", st.Err())
}

// retire closes a lane that was never active or broke, and records the reason.
func (l *link) retire(x *lane, st ucs.Status) {
	if x.Retired {
		return
	}
	if st == ucs.StatusOK {
		l.retireOpenLane(x)
		return
	}
	if l.onTrial(x) {
		x.Retired, x.Failed = true, nil
		return
	}
	why := x.Failed
	if why == nil {
		why = peerStatusErr(st)
	}
	l.giveUp(x.Iface, why)
	l.e.w.stats.replacedLanes.Inc()
	active := x.Active
	connected := x.Connected
	had := l.lanes.Retire(x, st)
	if l.isMovingAM(x) {
		had |= handshake.Set(wireup.AM)
	}
	if !active {
		return
	}
	l.e.w.stats.spans.beginFailover(l.e, had)
	l.losses++
	for r := range l.e.ops.all {
		r.flags |= reqLaneLost
	}
	l.findRails()
	l.e.lanesChanged()
	if had&l.e.roles.pinned != 0 && connected {
		l.e.markFailed(st, why, x.Iface)
		return
	}
	l.e.bind()
	l.rerouting = true
	x.EP.PurgePending(runPurged)
	l.rerouting = false
	if had.Has(wireup.AM) {
		l.e.endAnswered(st)
	}
	l.e.w.stats.spans.endFailover(l.e)
}

// lacksAnyRole reports whether one of the roles has no lane.
func (e *EP) lacksAnyRole(roles handshake.Roles) bool {
	for p := range wireup.Aux {
		if roles.Has(p) && e.lane(p) == nil {
			return true
		}
	}
	return false
}

// leaveLane moves an operation that waits for resources of a broken lane to
// the next lane. An operation that was posted in part fails, because the rest would arrive too late.
func (r *Request) leaveLane() {
	switch {
	case r.stage.role == noRole: // a flush: no operation remains on that lane
		r.proceed()
	case r.begun():
		r.fail(r.ep.link.lanes.Lost(r.stage.role))
		r.posted()
	default:
		r.requeue()
	}
}

// begun reports whether a posted part of the operation is useless without the rest. Of operations
// with several steps, only puts have such parts.
func (r *Request) begun() bool { return r.flags&reqPosted != 0 && (!r.stage.steps || r.off > 0) }

// requeue queues an operation of a broken lane for the next one. A message is charged
// again when its turn comes: an earlier message may need the credit first.
func (r *Request) requeue() {
	r.revertSend()
	r.flags |= reqUnfenced
	r.ep.queue().unsorted = true
	r.ep.wait(r)
}

// reroute queues an operation for the next lane if err means that its own lane broke. It returns
// false for other errors, and if there is no next lane.
func (r *Request) reroute(err error) bool {
	s := r.stage
	if s.role == noRole || r.begun() || !r.ep.canReroute(s, err) {
		return false
	}
	r.requeue()
	return true
}

// canReroute reports whether a lane has rejected an operation of a stage because the lane is broken, and another lane
// can accept the operation. The transport has reported the failure already, or reports it in Progress.
func (e *EP) canReroute(s *stage, err error) bool {
	if !errors.Is(err, uct.ErrEPFailed) || e.state != epOpen {
		return false
	}
	x, why := e.reportedBrokenLane()
	if x == nil {
		x, why = s.lane(e), err
	}
	if x == nil {
		x = e.link.only()
	}
	return x != nil && !e.link.fatal(x, why)
}

// reportedBrokenLane returns a lane in use that its transport has reported as failed.
func (e *EP) reportedBrokenLane() (*lane, error) {
	for _, b := range e.w.todo.broken {
		if x := e.laneOf(b.ep); x != nil && !x.Retired && !e.link.onTrial(x) {
			return x, b.err
		}
	}
	return nil, nil
}

// broken returns a broken lane without which the EP cannot continue, if the EP has not failed yet.
func (e *EP) broken() (*iface, error) {
	for _, b := range e.w.todo.broken {
		x := e.laneOf(b.ep)
		if x != nil && !x.Retired && e.link.fatal(x, b.err) {
			return x.Iface, b.err
		}
	}
	return nil, nil
}

// failureStatus returns the result of an operation that a transport completed with st. If the reason is a broken
// lane without which the EP cannot continue, it fails the EP first.
func (e *EP) failureStatus(r *Request, st ucs.Status) ucs.Status {
	if e.closing.aborting == ucs.StatusOK && !e.origin.adopted {
		st = e.failIfFatal(r, st)
	}
	if e.state == epFailed && st == ucs.StatusCanceled {
		return e.failed.cause
	}
	return st
}

// failIfFatal fails the EP if it cannot continue without a lane that is broken, as reported by the
// transport or by the status of an operation. It returns that
// status, or the reason for which the operation's lane was closed.
func (e *EP) failIfFatal(r *Request, st ucs.Status) ucs.Status {
	if i, why := e.broken(); why != nil {
		e.markFailed(statusOf(why), why, i)
		return st
	}
	if r.awaits() && r.flags&reqZcopy == 0 { // the status is from the peer, or from a child request, which has called failIfFatal
		return st
	}
	if l := e.link; l != nil {
		why := l.whyLost(r)
		if why != ucs.StatusOK && r.flags&reqPosted != 0 && l.isClosedLaneStatus(st) {
			st = why
		}
		if r.stage.reportsLaneLoss {
			l.reported()
		}
		if st == why || st == l.lost.status && r.stage.role != noRole && e.lostRoleErr(r.stage.role) != nil {
			return st
		}
	}
	switch st {
	case ucs.StatusTimedOut, ucs.StatusRNR:
		if !e.survivesLoss(r) {
			e.markFailed(st, st.Err(), e.via(r.stage))
		}
	case ucs.StatusConnReset, ucs.StatusPeerClosed:
		e.markFailed(st, st.Err(), e.via(r.stage))
	}
	return st
}

// isClosedLaneStatus reports whether st can be the status of operations in flight over a lane that
// is no longer in use: the lane was closed, here or by the peer.
func (l *link) isClosedLaneStatus(st ucs.Status) bool {
	switch st {
	case ucs.StatusCanceled:
		return true
	case ucs.StatusTimedOut, ucs.StatusRNR, ucs.StatusConnReset, ucs.StatusPeerClosed:
		return l.hasClosedLaneOps()
	}
	return false
}

// hasClosedLaneOps reports whether operations may be in flight over lanes that are no longer in use.
func (l *link) hasClosedLaneOps() bool { return l.e.retainedIfaces != nil || l.retiring() }

// whyLost returns why the latest lane broke over which a request was posted; StatusOK if none
// broke.
func (l *link) whyLost(r *Request) ucs.Status {
	switch {
	case r.flags&reqGivenUp != 0:
		return ucs.StatusOK
	case r.stage.role != noRole:
		return l.lanes.Lost(r.stage.role)
	case l.lanes.Unreported() == ucs.StatusOK && l.hasClosedLaneOps():
		return l.lanes.LastLost()
	}
	return l.lanes.Unreported()
}

// reported records that a flush has reported the broken lanes.
func (l *link) reported() {
	for _, b := range l.e.w.todo.broken {
		if x := l.e.laneOf(b.ep); x != nil {
			x.MarkReported()
		}
	}
	l.lanes.Reported()
}

// survivesLoss reports whether the EP survives the loss of the request's lane, or of any lane if
// the request uses all.
func (e *EP) survivesLoss(r *Request) bool {
	if e.link == nil {
		return false
	}
	s := r.stage
	if s.part != nil { // its parts have called failIfFatal
		return true
	}
	for n := range e.link.lanes.All {
		x := &e.link.lanes.All[n]
		takes := s.role == noRole || e.link.lanes.Use[s.role] == x
		if s.pinned {
			takes = n == int(r.lane)
		}
		if x.Active && takes && !e.link.survives(x) {
			return false
		}
	}
	return true
}

// deferFailure delays the completion of a transfer with status st until it is known whether a lane has broken,
// because the transport may report the broken lane later. It returns false if that makes no difference.
func (r *Request) deferFailure(st ucs.Status) bool {
	e := r.ep
	switch {
	case e.link != nil && e.link.decided == r:
		return false
	case st == ucs.StatusOK || e.state > epClosing || e.closing.aborting != ucs.StatusOK || r.isAbandoned():
		return false
	case r.flags&reqNoKey != 0 && r.stage.fallback == nil: // the whole request uses another scheme
		return false
	case (st == ucs.StatusRemoteAccess || st == ucs.StatusRemoteInvalid) && r.flags&reqNoKey == 0: // the same error would break every lane
		return false
	case r.parent != nil && r.parent.comp.Status != ucs.StatusOK:
		return false
	}
	r.trackUnposted()
	e.link.undecided, e.link.pause = append(e.link.undecided, r), decidePause
	e.w.schedule(e)
	return true
}

// repost posts a transfer again, over the current lane of puts and gets.
func (r *Request) repost() {
	r.worker.stats.repeatedTransfers.Inc()
	if r.flags&reqNoKey != 0 {
		r.flags &^= reqNoKey
		r.stage.fallback(r)
	} else if s := r.stage.again; s != nil {
		r.stage = s
	}
	r.off = 0
	r.comp.Count, r.comp.Status = 1, ucs.StatusOK
	r.flags = r.flags&^(reqPosted|reqLaneLost) | reqUnfenced
	r.launch()
}

// isAbandoned reports whether the caller has abandoned the operation.
func (r *Request) isAbandoned() bool {
	for ; r != nil; r = r.parent {
		if r.flags&reqGivenUp != 0 {
			return true
		}
	}
	return false
}

// decide repeats transfers of broken lanes, and completes the others. While the peer may still
// use a broken lane, the transfers wait.
func (l *link) decide() {
	if len(l.undecided) > 0 && l.pause > 0 {
		l.pause--
		l.e.w.schedule(l.e)
		return
	}
	list := l.undecided
	l.undecided = nil
	for _, r := range list {
		switch {
		case r.flags&(reqLaneLost|reqNoKey) == 0:
			l.decided = r
			r.stage.done(r)
			l.decided = nil
		case l.retiring():
			l.undecided = append(l.undecided, r)
		default:
			r.repost()
		}
	}
}

// retiring reports whether a broken lane is not closed yet at both sides.
func (l *link) retiring() bool {
	for i := range l.lanes.All {
		if x := &l.lanes.All[i]; x.Retired && x.EP != nil {
			return true
		}
	}
	return false
}

// endUndecided fails the transfers that wait to be repeated, because the EP closes or has failed.
func (l *link) endUndecided(st ucs.Status) {
	list := l.undecided
	l.undecided = nil
	for _, r := range list {
		r.complete(st)
	}
}

// decidePause is the number of times that Progress handles an EP before a failed transfer is repeated or completed. A
// transport whose post fails reports the failure in its next Progress, and the worker may have polled it already in this one.
const decidePause = 2

// partEnded completes a transfer, or repeats it if its lane broke.
func (r *Request) partEnded() {
	if st := r.comp.Status; !r.deferFailure(st) {
		r.complete(st)
	}
}
