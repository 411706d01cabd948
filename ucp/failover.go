package ucp

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// A lane that breaks goes out of its roles, here and at the peer, and the next best pair of
// transports takes its place. What had not been posted to it moves; what had been posted
// ends with the reason, and the next flush reports it, since it may have left puts behind
// of which no request knows. A role that has no lane left is lost: what needs it ends with the
// reason (lostrole.go). The EP fails with the reason when that leaves it no lane that is of use,
// or none for messages, and at once when the reason says that the peer is gone.

// peerGone reports that err says that the peer has gone. Any other error is about one lane, also
// ErrUnreachable: another network device may lead to the peer.
func peerGone(err error) bool {
	return errors.Is(err, ucs.ErrConnReset) || errors.Is(err, ucs.ErrPeerClosed)
}

// fatal reports that the EP cannot go on without a lane that failed for a reason.
func (l *link) fatal(x *lane, err error) bool {
	return peerGone(err) || x.Proven && !l.survives(x)
}

// pinned reports that a lane cannot be replaced.
func (l *link) pinned(x *lane) bool {
	return l.e.roles.pinned.Has(wireup.AM) && l.lanes.Use[wireup.AM] == x
}

// survives reports that the EP goes on if a lane breaks.
func (l *link) survives(x *lane) bool {
	return l.e.state == epOpen && !(x.Proven && l.pinned(x)) && l.conn.Survives(l.lanes.Index(x))
}

// laneBroke handles a lane whose transport endpoint failed.
func (e *EP) laneBroke(x *lane, err error) {
	l := e.link
	if e.state != epOpen || l.fatal(x, err) {
		e.fail(statusOf(err), err, x.Iface)
		return
	}
	x.Failed = err
	e.handle(wireup.Event{Kind: wireup.LaneFailed, Lane: l.lanes.Index(x), Status: statusOf(err)})
}

// saidByPeer is the error of a lane that the peer has refused or dropped with a status. What the peer has no
// room for is in its own error.
func saidByPeer(st ucs.Status) error {
	if st == ucs.StatusNoMemory {
		return fmt.Errorf("%w, says the peer: its device or process has as many connections (QPs, descriptors) as it can have, or no memory", st.Err())
	}
	return fmt.Errorf("%w, says the peer", st.Err())
}

// retire takes a lane out of use that came to nothing or broke, and notes why.
func (l *link) retire(x *lane, st ucs.Status) {
	if x.Retired {
		return
	}
	why := x.Failed
	if why == nil {
		why = saidByPeer(st)
	}
	l.tried = append(l.tried, x.Iface.failure(why))
	l.e.w.stats.replacedLanes.Inc()
	active := x.Active
	proven := x.Proven
	if active {
		l.e.w.stats.spans.begin(spanOf{spanFailover, l.e}, "failover")
	}
	had := l.lanes.Retire(x, st)
	if !active {
		return
	}
	l.losses++
	for r := range l.e.ops.all {
		r.flags |= reqLost
	}
	l.findRails()
	l.e.lanesChanged()
	if had&l.e.roles.pinned != 0 && proven {
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
	if !l.e.lacksAny(had) {
		l.e.w.stats.spans.end(spanOf{spanFailover, l.e})
	}
}

// lacksAny reports that there is no lane for one of the roles.
func (e *EP) lacksAny(roles wireup.Roles) bool {
	for p := range wireup.Aux {
		if roles.Has(p) && e.lane(p) == nil {
			return true
		}
	}
	return false
}

// leaveLane has an operation that waits for the resources of a lane which broke go on
// with the next lane. What was begun ends here: the rest of it would come too late.
func (r *Request) leaveLane() {
	switch {
	case r.stage.role == noRole: // a flush: that lane has nothing left
		r.proceed()
	case r.begun():
		r.fail(r.ep.link.lanes.Lost(r.stage.role))
		r.posted()
	default:
		r.waitAgain()
	}
}

// begun reports that a part of the operation was posted without which the rest is nothing. Of what
// takes steps, only a put has such.
func (r *Request) begun() bool { return r.flags&reqPosted != 0 && (!r.stage.steps || r.off > 0) }

// waitAgain has an operation wait for the next lane, whose own broke. A message is charged
// anew in its turn: one before it may need the credit first.
func (r *Request) waitAgain() {
	r.takeBack()
	r.flags |= reqAhead
	r.ep.queue().unsorted = true
	r.ep.wait(r)
}

// reroute keeps an operation for the next lane whose own broke, as err says. It reports
// false for other errors, and if there is no next lane.
func (r *Request) reroute(err error) bool {
	s := r.stage
	if s.role == noRole || r.begun() || !r.ep.moves(s, err) {
		return false
	}
	r.waitAgain()
	return true
}

// moves reports that a lane did not take an operation of a stage since it is broken, and that
// others will. The transport may have told already, or tells in Progress.
func (e *EP) moves(s *stage, err error) bool {
	if !errors.Is(err, uct.ErrEPFailed) || e.state != epOpen {
		return false
	}
	x, why := e.told()
	if x == nil {
		x, why = s.lane(e), err
	}
	if x == nil {
		x = e.link.only()
	}
	return x != nil && !e.link.fatal(x, why)
}

// told is a lane that failed, as its transport has told, and that is still in use.
func (e *EP) told() (*lane, error) {
	for _, b := range e.w.todo.broken {
		if x := e.laneOf(b.ep); x != nil && !x.Retired {
			return x, b.err
		}
	}
	return nil, nil
}

// broken is a lane without which the EP cannot go on, if it does not know yet.
func (e *EP) broken() (*iface, error) {
	for _, b := range e.w.todo.broken {
		x := e.laneOf(b.ep)
		if x != nil && !x.Retired && (peerGone(b.err) || x.Proven && !e.link.survives(x)) {
			return x.Iface, b.err
		}
	}
	return nil, nil
}

// failureStatus is how an operation ended whose transport says st. If the reason is that a lane
// broke without which the EP cannot go on, the EP has failed before the operation ends.
func (e *EP) failureStatus(r *Request, st ucs.Status) ucs.Status {
	if e.closing.aborting == ucs.StatusOK && !e.origin.adopted {
		st = e.learn(r, st)
	}
	if e.state == epFailed && st == ucs.StatusCanceled {
		return e.failed.cause
	}
	return st
}

// learn fails the EP if one of its lanes is broken without which it cannot go on, as the
// transport has told or as the status says by which an operation ended. It returns that
// status, or why the operation's lane was closed.
func (e *EP) learn(r *Request, st ucs.Status) ucs.Status {
	if i, why := e.broken(); why != nil {
		e.markFailed(statusOf(why), why, i)
		return st
	}
	if r.awaits() && r.flags&reqZcopy == 0 { // the peer says so, or the request that it leads, which has told
		return st
	}
	if l := e.link; l != nil {
		why := l.whyLost(r)
		if why != ucs.StatusOK && r.flags&reqPosted != 0 && l.wentWith(st) {
			st = why
		}
		if r.stage.tells {
			l.reported()
		}
		if st == why || st == l.lost.status && r.stage.role != noRole && e.lacks(r.stage.role) != nil {
			return st
		}
	}
	switch st {
	case ucs.StatusTimedOut, ucs.StatusRNR:
		if !e.goesOn(r) {
			e.markFailed(st, st.Err(), e.via(r.stage))
		}
	case ucs.StatusConnReset, ucs.StatusPeerClosed:
		e.markFailed(st, st.Err(), e.via(r.stage))
	}
	return st
}

// wentWith reports that a status may be how a transport ended what was in flight over a lane that
// is out of use: the lane was closed, or the peer has closed it.
func (l *link) wentWith(st ucs.Status) bool {
	switch st {
	case ucs.StatusCanceled:
		return true
	case ucs.StatusTimedOut, ucs.StatusRNR, ucs.StatusConnReset, ucs.StatusPeerClosed:
		return l.lingers()
	}
	return false
}

// lingers reports that operations may be in flight over lanes that are out of use.
func (l *link) lingers() bool { return l.e.held != nil || l.retiring() }

// whyLost is why the latest lane broke that a request was posted over; StatusOK if none
// has.
func (l *link) whyLost(r *Request) ucs.Status {
	switch {
	case r.flags&reqGivenUp != 0:
		return ucs.StatusOK
	case r.stage.role != noRole:
		return l.lanes.Lost(r.stage.role)
	case l.lanes.Unreported() == ucs.StatusOK && l.lingers():
		return l.lanes.LastLost()
	}
	return l.lanes.Unreported()
}

// reported notes that a flush has told of the lanes that broke.
func (l *link) reported() {
	for _, b := range l.e.w.todo.broken {
		if x := l.e.laneOf(b.ep); x != nil {
			x.Told()
		}
	}
	l.lanes.Reported()
}

// goesOn reports that the EP survives the loss of the lane that a request takes; of any, if
// it takes all.
func (e *EP) goesOn(r *Request) bool {
	if e.link == nil {
		return false
	}
	s := r.stage
	if s.part != nil { // its parts have told
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

// repeats keeps a transfer that ended with a status until it is known whether a lane has broken,
// which the transport may tell later. It reports false if that makes no difference.
func (r *Request) repeats(st ucs.Status) bool {
	e := r.ep
	switch {
	case e.link != nil && e.link.decided == r:
		return false
	case st == ucs.StatusOK || e.state > epClosing || e.closing.aborting != ucs.StatusOK || r.unwanted():
		return false
	case r.flags&reqUnreached != 0 && r.stage.instead == nil: // the request that it is a part of goes another way
		return false
	case (st == ucs.StatusRemoteAccess || st == ucs.StatusRemoteInvalid) && r.flags&reqUnreached == 0: // every lane would break
		return false
	case r.parent != nil && r.parent.comp.Status != ucs.StatusOK:
		return false
	}
	r.trackUnposted()
	e.link.undecided, e.link.pause = append(e.link.undecided, r), decidePause
	e.w.schedule(e)
	return true
}

// repeat posts a transfer anew, over the lane that puts and gets have now.
func (r *Request) repeat() {
	r.worker.stats.repeatedTransfers.Inc()
	if r.flags&reqUnreached != 0 {
		r.flags &^= reqUnreached
		r.stage.instead(r)
	} else if s := r.stage.again; s != nil {
		r.stage = s
	}
	r.off = 0
	r.comp.Count, r.comp.Status = 1, ucs.StatusOK
	r.flags = r.flags&^(reqPosted|reqLost) | reqAhead
	r.launch()
}

// unwanted reports that the caller has given up the operation.
func (r *Request) unwanted() bool {
	for ; r != nil; r = r.parent {
		if r.flags&reqGivenUp != 0 {
			return true
		}
	}
	return false
}

// decide repeats transfers whose lane broke, and ends the others. As long as the peer may still
// use a lane that broke they wait.
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
		case r.flags&(reqLost|reqUnreached) == 0:
			l.decided = r
			r.stage.done(r)
			l.decided = nil
		case l.retiring():
			l.undecided = append(l.undecided, r)
		default:
			r.repeat()
		}
	}
}

// retiring reports that a lane which broke is not closed yet at both sides.
func (l *link) retiring() bool {
	for i := range l.lanes.All {
		if x := &l.lanes.All[i]; x.Retired && x.EP != nil {
			return true
		}
	}
	return false
}

// endUndecided ends what waits to be repeated: the EP goes.
func (l *link) endUndecided(st ucs.Status) {
	list := l.undecided
	l.undecided = nil
	for _, r := range list {
		r.settle(st)
	}
}

// decidePause is how often Progress works an EP off before it is decided what becomes of a
// transfer: a transport whose call refuses to work tells of the failure at the next Progress, and
// the worker may have polled it already in this one.
const decidePause = 2

// partEnded ends a transfer that is repeated if its lane broke.
func (r *Request) partEnded() {
	if st := r.comp.Status; !r.repeats(st) {
		r.settle(st)
	}
}
