package ucp

import (
	"slices"
	"time"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// A lane that failed comes back when its path works again. wireup decides when to try the path, and opens a
// lane without roles over it. When a message has come over this lane, the roles for which it is better move to
// it, at each side on its own:
//
//   - Operations that start wait until no operation is queued at the transport for the old lane. Then the role
//     has no lane, and operations wait for one, as after a failure.
//   - The old lane is flushed. Puts, gets and atomics then continue over the new lane.
//   - Messages continue when the peer has handled those that came over the old lane (LEAVE, LEFT).
//   - When both sides have left the old lane, both close it.
//
// Nothing is repeated and nothing is lost. If the new lane fails in the meantime, the role returns to the old one.

// defaultLaneRetry is that of Config.LaneRetryInterval.
const defaultLaneRetry = 10 * time.Second

// laneRetry is LaneRetryInterval as wireup takes it: 0 for never. Queues of tagged messages belong to a lane, so
// their messages do not move.
func (c *Config) laneRetry() time.Duration {
	if c.TagProto != "" && c.TagProto != tagProtoAuto {
		return 0
	}
	switch c.LaneRetryInterval {
	case 0:
		return defaultLaneRetry
	case config.Infinite:
		return 0
	}
	return c.LaneRetryInterval
}

// laneMoves are the lanes of an EP that are on trial or being left.
type laneMoves struct {
	trials uint8 // numbers of lanes on trial, as bits
	held   bool  // operations that start wait, as behind a fence
	leaves []*laneLeave
	proofs []*laneProof
	drains []wireup.Event // LaneDrained, when what has arrived was handled
}

// laneLeave is a lane from which roles move away.
type laneLeave struct {
	lane    int
	roles   wireup.Roles
	cut     bool           // the roles have no lane
	waits   bool           // pend is queued at the lane
	flushes bool           // flush was posted
	flushed bool           // flush has completed
	flush   uct.Completion // belongs to the transport while flushes and not flushed
	pend    uct.PendingReq
}

// laneProof is a message to send over a lane on trial.
type laneProof struct {
	lane  int
	msg   packedMsg
	waits bool // pend is queued at the lane
	pend  uct.PendingReq
}

// moving is the state of lanes that move.
func (l *link) moving() *laneMoves {
	if l.moves == nil {
		l.moves = &laneMoves{}
	}
	return l.moves
}

// onTrial reports whether a lane is on trial: its failure concerns nothing else.
func (l *link) onTrial(x *lane) bool {
	if l.moves == nil || l.moves.trials == 0 {
		return false
	}
	n := l.lanes.Index(x)
	return n >= 0 && l.moves.trials&(1<<n) != 0
}

// openedOnTrial records that a lane is on trial, if it is.
func (l *link) openedOnTrial(n int) {
	if l.conn.OnTrial(n) {
		l.moving().trials |= 1 << n
		l.e.w.stats.laneRetries.Inc()
	}
}

// endMoves forgets what moves to or from a lane that has gone.
func (l *link) endMoves(n int) {
	m := l.moves
	if m == nil {
		return
	}
	m.trials &^= 1 << n
	m.leaves = slices.DeleteFunc(m.leaves, func(v *laneLeave) bool { return v.lane == n })
	m.proofs = slices.DeleteFunc(m.proofs, func(p *laneProof) bool { return p.lane == n })
	l.releaseStarts()
}

// endAllMoves is called when the lanes of the EP close.
func (l *link) endAllMoves() {
	if m := l.moves; m != nil {
		if m.held {
			l.e.fence.count--
		}
		l.moves = nil
	}
}

// proveLane sends a message over a lane on trial.
func (l *link) proveLane(n int, msg []byte) {
	m := l.moving()
	if slices.ContainsFunc(m.proofs, func(p *laneProof) bool { return p.lane == n }) {
		return // the one before was not sent yet
	}
	p := &laneProof{lane: n, msg: packedMsg{msg}}
	p.pend.Func = func(*uct.PendingReq) error {
		p.waits = false
		l.e.w.schedule(l.e)
		return nil
	}
	m.proofs = append(m.proofs, p)
	l.e.w.schedule(l.e)
}

// send sends the message, or waits for resources of the lane. It reports false if that has to be tried again. If the
// lane has failed, its transport reports that.
func (p *laneProof) send(l *link) bool {
	x := &l.lanes.All[p.lane]
	if x.EP == nil || x.AM == nil || p.waits {
		return !p.waits
	}
	_, err := x.AM.AMBcopy(wire.AMWireup, &p.msg)
	switch err {
	case nil:
		l.prove(x)
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

// returned records that a lane works whose pair had failed, and that roles which were lost have pairs again.
func (l *link) returned(n int, roles wireup.Roles) {
	x := &l.lanes.All[n]
	l.moving().trials &^= 1 << n
	l.e.w.stats.returnedLanes.Inc()
	l.tried = slices.DeleteFunc(l.tried, func(f givenUp) bool { return f.iface == x.Iface })
	if l.lost.roles &^= roles; roles != 0 {
		l.e.lanesChanged()
	}
}

// leaveLane begins to move roles away from a lane.
func (l *link) leaveLane(n int, roles wireup.Roles) {
	m := l.moving()
	v := &laneLeave{lane: n, roles: roles}
	v.pend.Func = func(*uct.PendingReq) error {
		v.waits = false
		l.e.w.schedule(l.e)
		return nil
	}
	v.flush = uct.Completion{Count: 1, Func: func(*uct.Completion) {
		v.flushed = true
		l.e.w.schedule(l.e)
	}}
	m.leaves = append(m.leaves, v)
	if !m.held {
		m.held = true
		l.e.fence.count++
		l.e.unbind()
	}
	l.e.w.schedule(l.e)
}

// releaseStarts lets operations start again when no lane needs that they wait.
func (l *link) releaseStarts() {
	m, e := l.moves, l.e
	if !m.held || slices.ContainsFunc(m.leaves, func(v *laneLeave) bool { return !v.cut }) {
		return
	}
	m.held = false
	e.fence.count--
	if e.state == epOpen && e.fence.count == 0 {
		e.bind()
	}
	if e.state < epFailed {
		e.replay()
	}
}

// moveLanes continues with what moves.
func (l *link) moveLanes() {
	m := l.moves
	if m == nil {
		return
	}
	m.proofs = slices.DeleteFunc(m.proofs, func(p *laneProof) bool { return p.send(l) })
	for _, v := range slices.Clone(m.leaves) {
		if left := l.moves == m && slices.Contains(m.leaves, v) && l.leave(v); left {
			m.leaves = slices.DeleteFunc(m.leaves, func(x *laneLeave) bool { return x == v })
			l.e.handle(wireup.Event{Kind: wireup.LaneLeft, Lane: v.lane})
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

// leave continues with a lane from which roles move away. It reports whether nothing is in flight any more that was
// posted for the roles.
func (l *link) leave(v *laneLeave) bool {
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
		if x.EP == nil || v.waits { // an operation that started again has failed
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
			return false // the transport reports it
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

// awaitResources continues with the lane when its transport has worked off what is queued.
func (l *link) awaitResources(x *lane, v *laneLeave) {
	switch x.EP.AddPending(&v.pend) {
	case nil:
		v.waits = true
	case uct.ErrBusy:
		l.e.w.schedule(l.e)
	}
}

// cutRoles takes the roles from a lane. Operations wait until another lane has them.
func (l *link) cutRoles(x *lane, v *laneLeave) {
	v.cut = true
	for role := range wireup.Aux {
		if v.roles.Has(role) && l.lanes.Use[role] == x {
			l.lanes.Use[role] = nil
		}
	}
	l.e.unbind()
	l.findRails()
	l.e.lanesChanged()
	l.e.bind()
	l.releaseStarts()
}

// leaves reports whether a lane has lost a role, which moves to another lane.
func (l *link) leaves(n int, role wireup.Role) bool {
	return l.moves != nil && slices.ContainsFunc(l.moves.leaves, func(v *laneLeave) bool {
		return v.lane == n && v.cut && v.roles.Has(role)
	})
}

// stays ends the move of roles that a lane gets back, as the better lane has failed.
func (l *link) stays(n int, roles wireup.Roles) {
	m := l.moves
	if m == nil {
		return
	}
	before := len(m.leaves)
	m.leaves = slices.DeleteFunc(m.leaves, func(v *laneLeave) bool { return v.lane == n && v.roles&roles != 0 })
	if len(m.leaves) < before {
		l.releaseStarts()
	}
}

// holdsStarts reports whether operations that start must wait until a lane has lost its roles. l may be nil.
func (l *link) holdsStarts() bool { return l != nil && l.moves != nil && l.moves.held }

// receiveRest handles what has arrived at a transport.
func (i *iface) receiveRest() {
	for range maxRestPolls {
		if i.Progress() == 0 {
			return
		}
	}
}

// givenUp is a transport that was given up, and why.
type givenUp struct {
	iface *iface
	err   error
}

// giveUp records that a transport was given up.
func (l *link) giveUp(i *iface, why error) { l.tried = append(l.tried, givenUp{i, i.failure(why)}) }

// whyGivenUp are the reasons why transports were given up.
func (l *link) whyGivenUp() []error {
	all := make([]error, len(l.tried))
	for i := range l.tried {
		all[i] = l.tried[i].err
	}
	return all
}

// drain has the worker handle what has arrived at a transport from the peer, at the next progress.
func (l *link) drain(act wireup.Action) {
	m := l.moving()
	m.drains = append(m.drains, wireup.Event{Kind: wireup.LaneDrained, Local: act.Local, Remote: act.Remote, Status: act.Status})
	l.e.w.schedule(l.e)
}

// leaveOpen retires a lane that both sides have left. It is closed when the peer has closed its own.
func (l *link) leaveOpen(x *lane) {
	l.lanes.Leave(x)
	l.e.lanesChanged()
}
