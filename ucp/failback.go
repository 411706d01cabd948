package ucp

import (
	"slices"
	"time"

	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// If Config.LaneRetryInterval is set and the path of a failed lane works again, operations return to the path.
// handshake.Conn decides when to try the path, and opens a lane without roles over it. After a message has arrived over
// this lane, the roles for which it is the best lane move to it. Each side moves its roles independently:
//
//   - New operations wait until the transport has no queued operation for the old lane. Then the
//     role has no lane, and operations wait for one, as after a failure.
//   - The old lane is flushed. Puts, gets and atomics then continue over the new lane.
//   - Messages continue after the peer has handled the messages that arrived over the old lane
//     (MOVE, MOVED).
//   - When both sides have moved their roles, both close the old lane.
//
// Nothing is repeated or lost. If the new lane fails in the meantime, the role returns to the old
// lane.

// laneRetry returns the interval for handshake.Conn; 0 for never. Tuple queues belong to a lane, so their
// messages cannot move.
func (c *Config) laneRetry() time.Duration {
	if c.TagProto != "" && c.TagProto != tagProtoAuto {
		return 0
	}
	if c.LaneRetryInterval == config.Infinite {
		return 0
	}
	return c.LaneRetryInterval
}

// laneMoves is the lanes of an EP that are on trial or that roles move away from.
type laneMoves struct {
	trials        uint8 // bit n is set if lane n is on trial
	startsBlocked bool  // new operations wait, as behind a fence
	// oldAM is the lane from which the role of messages moves, until another lane has the role. If the lane breaks
	// before, messages may be lost.
	oldAM     *lane
	roleMoves []*roleMove
	probes    []*laneProbe
	drains    []handshake.Event // LaneDrained events to deliver after the worker has handled what has arrived
}

// roleMove is a lane from which roles move away.
type roleMove struct {
	lane    int
	roles   handshake.Roles
	cut     bool           // the roles have no lane
	waits   bool           // pend is queued at the lane
	flushes bool           // flush was posted
	flushed bool           // flush has completed
	flush   uct.Completion // the transport uses it while flushes is set and flushed is not
	pend    uct.PendingReq
}

// laneProbe is a PROBE to send over a lane on trial.
type laneProbe struct {
	lane  int
	msg   packedMsg
	waits bool // pend is queued at the lane
	pend  uct.PendingReq
}

// moving returns l.moves, and makes it if needed.
func (l *link) moving() *laneMoves {
	if l.moves == nil {
		l.moves = &laneMoves{}
	}
	return l.moves
}

// onTrial reports whether a lane is on trial. The failure of such a lane affects no operation.
func (l *link) onTrial(x *lane) bool {
	if l.moves == nil || l.moves.trials == 0 {
		return false
	}
	n := l.lanes.Index(x)
	return n >= 0 && l.moves.trials&(1<<n) != 0
}

// openedOnTrial records and counts the opened lane if it is on trial.
func (l *link) openedOnTrial(n int) {
	if l.conn.OnTrial(n) {
		l.moving().trials |= 1 << n
		l.e.w.stats.laneRetries.Inc()
	}
}

// endMoves removes the moves from and trials of a lane that closes.
func (l *link) endMoves(n int) {
	m := l.moves
	if m == nil {
		return
	}
	m.trials &^= 1 << n
	m.roleMoves = slices.DeleteFunc(m.roleMoves, func(v *roleMove) bool { return v.lane == n })
	m.probes = slices.DeleteFunc(m.probes, func(p *laneProbe) bool { return p.lane == n })
	l.unblockStarts()
}

// endAllMoves is called when the lanes of the EP close.
func (l *link) endAllMoves() {
	if m := l.moves; m != nil {
		if m.startsBlocked {
			l.e.fence.count--
		}
		l.moves = nil
	}
}

// probeLane sends a PROBE over a lane on trial.
func (l *link) probeLane(n int, msg []byte) {
	m := l.moving()
	if slices.ContainsFunc(m.probes, func(p *laneProbe) bool { return p.lane == n }) {
		return // the previous message was not sent yet
	}
	p := &laneProbe{lane: n, msg: packedMsg{msg}}
	p.pend.Func = func(*uct.PendingReq) error {
		p.waits = false
		l.e.w.schedule(l.e)
		return nil
	}
	m.probes = append(m.probes, p)
	l.e.w.schedule(l.e)
}

// send sends the message. If the lane has no resources, it returns false and schedules another call of send. If the lane
// has failed, send returns true, because the transport reports the failure.
func (p *laneProbe) send(l *link) bool {
	x := &l.lanes.All[p.lane]
	if x.EP == nil || x.AM == nil || p.waits {
		return !p.waits
	}
	_, err := x.AM.AMBcopy(wire.AMWireup, &p.msg)
	switch err {
	case nil:
		l.markConnected(x)
	case uct.ErrNoResource:
		if err = x.EP.AddPending(&p.pend); err == uct.ErrBusy {
			l.e.w.schedule(l.e)
			return false
		}
		p.waits = err == nil
		return !p.waits
	}
	return true
}

// returned records that a lane on trial works, and that lost roles have lanes again.
func (l *link) returned(n int, roles handshake.Roles) {
	x := &l.lanes.All[n]
	l.moving().trials &^= 1 << n
	l.e.w.stats.returnedLanes.Inc()
	l.tried = slices.DeleteFunc(l.tried, func(f givenUp) bool { return f.iface == x.Iface })
	if l.lost.roles &^= roles; roles != 0 {
		l.e.lanesChanged()
	}
}

// moveRolesFrom starts to move roles away from a lane.
func (l *link) moveRolesFrom(n int, roles handshake.Roles) {
	m := l.moving()
	v := &roleMove{lane: n, roles: roles}
	v.pend.Func = func(*uct.PendingReq) error {
		v.waits = false
		l.e.w.schedule(l.e)
		return nil
	}
	v.flush = uct.Completion{Count: 1, Func: func(*uct.Completion) {
		v.flushed = true
		l.e.w.schedule(l.e)
	}}
	m.roleMoves = append(m.roleMoves, v)
	if !m.startsBlocked {
		m.startsBlocked = true
		l.e.fence.count++
		l.e.unbind()
	}
	l.e.w.schedule(l.e)
}

// unblockStarts starts the waiting operations if no lane move needs them to wait any longer.
func (l *link) unblockStarts() {
	m, e := l.moves, l.e
	if !m.startsBlocked || slices.ContainsFunc(m.roleMoves, func(v *roleMove) bool { return !v.cut }) {
		return
	}
	m.startsBlocked = false
	e.fence.count--
	if e.state == epOpen && e.fence.count == 0 {
		e.bind()
	}
	if e.state < epFailed {
		e.replay()
	}
}

// moveLanes continues the lane moves. Progress calls it.
func (l *link) moveLanes() {
	l.checkIdle()
	m := l.moves
	if m == nil {
		return
	}
	m.probes = slices.DeleteFunc(m.probes, func(p *laneProbe) bool { return p.send(l) })
	for _, v := range slices.Clone(m.roleMoves) {
		if left := l.moves == m && slices.Contains(m.roleMoves, v) && l.continueMove(v); left {
			m.roleMoves = slices.DeleteFunc(m.roleMoves, func(x *roleMove) bool { return x == v })
			l.e.handle(handshake.Event{Kind: handshake.LaneQuiesced, Lane: v.lane})
		}
	}
	for l.moves == m && len(m.drains) > 0 {
		ev := m.drains[0]
		m.drains = m.drains[1:]
		l.e.w.ifaces[ev.Local].receiveRest()
		if l.moves == m && l.e.state < epFailed { // a handler may have closed the EP
			l.e.handle(ev)
		}
	}
}

// continueMove continues to move roles away from a lane. It reports whether no operation of these roles is
// in flight on the lane any more.
func (l *link) continueMove(v *roleMove) bool {
	x := &l.lanes.All[v.lane]
	if v.waits || x.EP == nil {
		return false
	}
	if !v.cut {
		if l.queuedAt(x) {
			l.awaitResources(x, v)
			return false
		}
		l.cutRoles(x, v)
		if x.EP == nil || v.waits { // an operation that started has failed and closed the lane
			return false
		}
	}
	if !v.flushes {
		pending, err := x.EP.Flush(&v.flush)
		switch {
		case err == uct.ErrNoResource:
			l.awaitResources(x, v)
			return false
		case err != nil:
			return false // the transport reports the error
		}
		v.flushes, v.flushed = true, !pending
	}
	return v.flushed
}

// queuedAt reports whether operations are in the pending queue of a lane.
func (l *link) queuedAt(x *lane) bool {
	for _, all := range [...]func(func(*Request) bool){l.e.ops.all, l.e.awaited.all} {
		for r := range all {
			if r.flags&reqQueued != 0 && r.waitsOn() == x {
				return true
			}
		}
	}
	return false
}

// awaitResources schedules the EP when the transport has posted what is queued for the lane.
func (l *link) awaitResources(x *lane, v *roleMove) {
	switch x.EP.AddPending(&v.pend) {
	case nil:
		v.waits = true
	case uct.ErrBusy:
		l.e.w.schedule(l.e)
	}
}

// cutRoles removes the roles from a lane. Operations wait until another lane has them.
func (l *link) cutRoles(x *lane, v *roleMove) {
	v.cut = true
	for role := range wireup.Aux {
		if v.roles.Has(role) && l.lanes.Use[role] == x {
			if role == wireup.AM {
				l.moves.oldAM = x
			}
			l.lanes.Use[role] = nil
		}
	}
	l.e.unbind()
	l.findRails()
	l.e.lanesChanged()
	l.e.bind()
	l.unblockStarts()
}

// hasMovedRole reports whether a role has been removed from a lane in a move.
func (l *link) hasMovedRole(n int, role wireup.Role) bool {
	return l.moves != nil && slices.ContainsFunc(l.moves.roleMoves, func(v *roleMove) bool {
		return v.lane == n && v.cut && v.roles.Has(role)
	})
}

// isMovingAM reports whether the role of messages moves from a lane and no other lane has it yet.
func (l *link) isMovingAM(x *lane) bool { return l.moves != nil && l.moves.oldAM == x }

// cancelMoves ends the moves of roles that return to the lane because the new lane has failed.
func (l *link) cancelMoves(n int, roles handshake.Roles) {
	m := l.moves
	if m == nil {
		return
	}
	before := len(m.roleMoves)
	m.roleMoves = slices.DeleteFunc(m.roleMoves, func(v *roleMove) bool { return v.lane == n && v.roles&roles != 0 })
	if len(m.roleMoves) < before {
		l.unblockStarts()
	}
}

// blocksStarts reports whether new operations must wait for a lane move. l may be nil.
func (l *link) blocksStarts() bool { return l != nil && l.moves != nil && l.moves.startsBlocked }

// receiveRest polls a transport until nothing more has arrived, at most maxRestPolls times.
func (i *iface) receiveRest() {
	for range maxRestPolls {
		if i.Progress() == 0 {
			return
		}
	}
}

// givenUp is a transport that was given up, with the reason.
type givenUp struct {
	iface *iface
	err   error
}

// giveUp records that a transport was given up.
func (l *link) giveUp(i *iface, why error) { l.tried = append(l.tried, givenUp{i, i.failure(why)}) }

// whyGivenUp returns the reasons why transports were given up.
func (l *link) whyGivenUp() []error {
	all := make([]error, len(l.tried))
	for i := range l.tried {
		all[i] = l.tried[i].err
	}
	return all
}

// drain records that the worker must handle what has arrived at a transport from the peer. The next
// Progress does that and reports LaneDrained.
func (l *link) drain(act handshake.Action) {
	m := l.moving()
	m.drains = append(m.drains, handshake.Event{Kind: handshake.LaneDrained, Local: act.Local, Remote: act.Remote, Status: act.Status})
	l.e.w.schedule(l.e)
}

// retireOpenLane retires a lane that neither side uses any more. It closes when the peer has closed its lane.
func (l *link) retireOpenLane(x *lane) {
	l.lanes.RetireUnused(x)
	l.e.lanesChanged()
}
