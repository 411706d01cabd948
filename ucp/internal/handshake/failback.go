package handshake

import (
	"slices"
	"time"

	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// maxRetryPause limits the pause before the next retry of a failed pair, as a multiple of ConnParams.Retry.
const maxRetryPause = 32

// maxNumber is the greatest number of a MOVE.
const maxNumber = 100

// retry describes the retries of a failed pair by this side. The zero value means that there are none.
type retry struct {
	enabled bool          // a lane over the pair was in use, and this side had proposed it
	running bool          // a lane over the pair is on trial
	at      time.Duration // time of the next retry
	pause   time.Duration // pause before the next retry
}

// moveState is the progress of moving the roles of a lane to a better one.
type moveState uint8

const (
	moveNone      moveState = iota
	moveQuiescing           // the caller executes QuiesceLane
	moveSent                // MOVE sent, waits for MOVED
	moveQuiesced            // nothing is in flight over the lane of an idle connection
)

// move is the state of a lane whose roles move to another one.
type move struct {
	state  moveState
	roles  Roles      // roles that move
	to     int        // lane to which they move; noLane if the connection is idle
	number ucs.Status // number of the MOVE
	closes bool       // the peer has abandoned the lane and waits for this side
}

// enableRetry schedules a retry of the pair of a lane that has failed.
func (c *Conn) enableRetry(l *lane) {
	x := c.exclusion(int(l.local), int(l.remote))
	if c.p.Retry <= 0 || c.p.Loopback || !l.initiator || l.trial || x == nil || x.retry.enabled {
		return
	}
	if both := c.p.Local.Resources[l.local].Caps & c.p.Remote.Resources[l.remote].Caps; !both.Has(uct.CapAMBcopy) {
		return // the transport cannot send the message that tests the lane
	}
	x.retry = retry{enabled: true, pause: c.p.Retry, at: c.now + c.p.Retry}
}

// nextRetry returns the time of the next retry; ok is false if there is none.
func (c *Conn) nextRetry() (at time.Duration, ok bool) {
	for i := range c.excluded {
		if r := &c.excluded[i].retry; r.enabled && !r.running && (!ok || r.at < at) {
			at, ok = r.at, true
		}
	}
	return at, ok && !c.over
}

// Retries reports the pairs that this side will try again, with the time of the next retry.
func (c *Conn) Retries() (all []Retry) {
	for i := range c.excluded {
		if x := &c.excluded[i]; x.retry.enabled {
			all = append(all, Retry{Local: int(x.local), Remote: int(x.remote), Running: x.retry.running, At: x.retry.at})
		}
	}
	return all
}

// Retry is a failed pair of resources that this side tries again.
type Retry struct {
	Local, Remote int
	Running       bool          // a retry is in progress
	At            time.Duration // otherwise the time of the next retry, in the time of Event.Now
}

// startRetries proposes failed pairs whose retry is due. At most one lane is on trial, and none
// while another handshake is in progress.
func (c *Conn) startRetries() {
	for i := range c.excluded {
		x := &c.excluded[i]
		if r := &x.retry; !r.enabled || r.running || r.at > c.now {
			continue
		}
		roles := c.rolesToRegain(x)
		if roles == 0 || !c.Quiet() || c.remoteEP == 0 || c.find(int(x.local), int(x.remote)) >= 0 || !c.startTrial(x, roles) {
			c.postpone(x)
		}
	}
}

// postpone doubles the pause of a pair and sets the time of its next retry.
func (c *Conn) postpone(x *pair) {
	x.retry.running = false
	x.retry.pause = min(2*x.retry.pause, maxRetryPause*c.p.Retry)
	x.retry.at = c.now + x.retry.pause
}

// rolesToRegain returns the roles that would use a failed pair if it worked.
func (c *Conn) rolesToRegain(x *pair) (roles Roles) {
	for role := range wireup.Aux {
		if (c.wanted | c.lost).Has(role) && c.planned(role, x, int(x.local), int(x.remote)) {
			roles |= Set(role)
		}
	}
	return roles
}

// planned reports whether a role uses the pair l, r if the failed pair x, which may be nil, works again.
func (c *Conn) planned(role wireup.Role, x *pair, l, r int) bool {
	ranked := selection.Rank(role, c.p.Local, c.p.Remote, c.p.Reach)
	plan := selection.Choose(role, c.p.Local, c.p.Remote, ranked, c.p.Rails, func(l, r int) bool {
		e := c.exclusion(l, r)
		return e != nil && e != x
	})
	return slices.ContainsFunc(plan, func(p selection.Candidate) bool { return p.Local == l && p.Remote == r })
}

// startTrial opens a lane without roles over a failed pair. It returns false if no slot is free.
func (c *Conn) startTrial(x *pair, roles Roles) bool {
	i := c.open(int(x.local), int(x.remote), true)
	if i < 0 {
		return false
	}
	x.retry.running = true
	l := &c.lanes[i]
	c.trials = c.trials%laneRoles + 1
	l.trial, l.proposed, l.number = true, roles, c.trials
	return true
}

// postponeEndedTrials postpones the next retry of pairs whose trial has ended without success.
func (c *Conn) postponeEndedTrials() {
	for i := range c.excluded {
		x := &c.excluded[i]
		if !x.retry.running {
			continue
		}
		if k := c.find(int(x.local), int(x.remote)); k < 0 || !c.lanes[k].trial {
			c.postpone(x)
		}
	}
}

// stopRetriesIfRejected stops the retries of a pair that the peer will never accept again.
func (c *Conn) stopRetriesIfRejected(l *lane, st ucs.Status) {
	x := c.exclusion(int(l.local), int(l.remote))
	if l.trial && x != nil && (st == ucs.StatusRejected || st == ucs.StatusUnsupported || st == ucs.StatusInvalidParam) {
		x.retry = retry{}
	}
}

// lateTrials is the number of trial numbers, counted back from the latest trial of the peer, that belong to earlier trials.
const lateTrials = 8

// isLateTrial reports whether a trial of the peer is not newer than its latest one. If a repeated REQUEST started a trial again
// that has ended, a late PROBE could complete it here: this side would use a lane that the peer has closed, and reject all further
// trials.
func (c *Conn) isLateTrial(n Roles) bool {
	return c.peerTrial != 0 && (c.peerTrial+laneRoles-n)%laneRoles < lateTrials
}

// OnTrial reports whether a lane is on trial: it has no role, and its failure concerns nothing else.
func (c *Conn) OnTrial(lane int) bool { return lane >= 0 && lane < MaxLanes && c.lanes[lane].trial }

// probe sends PROBE over a lane on trial itself.
func (c *Conn) probe(i int) {
	m := c.newMsg(Probe)
	m.Lanes = []MsgLane{c.lanes[i].entry(ucs.StatusOK)}
	c.do(Action{Kind: ProbeLane, Lane: i, Msg: m})
}

// handleProbe handles PROBE, which has arrived over the lane itself, so the lane works. PROBED follows.
func (c *Conn) handleProbe(m *Msg) {
	for k := range m.Lanes {
		e := &m.Lanes[k]
		i := c.find(int(e.Dst), int(e.Src))
		if i < 0 || c.lanes[i].state != laneActive && c.lanes[i].state != laneAccepted || c.lanes[i].number != e.Roles {
			c.ignored++
			continue
		}
		c.probed = append(c.probed, MsgLane{Src: e.Dst, Dst: e.Src, Roles: e.Roles})
		if l := &c.lanes[i]; l.trial {
			l.state = laneActive
			c.completeTrial(i)
		}
	}
}

// handleProbed handles PROBED.
func (c *Conn) handleProbed(m *Msg) {
	for k := range m.Lanes {
		e := &m.Lanes[k]
		i := c.find(int(e.Dst), int(e.Src))
		if i < 0 || !c.lanes[i].trial || c.lanes[i].state != laneActive || c.lanes[i].number != e.Roles {
			c.ignored++
			continue
		}
		c.completeTrial(i)
	}
}

// completeTrial ends the trial of a lane that works: its pair is not excluded any more, and the roles for
// which it is better move to the lane.
func (c *Conn) completeTrial(i int) {
	l := &c.lanes[i]
	l.trial, l.returned, l.proposed = false, true, 0
	local, remote := int(l.local), int(l.remote)
	c.excluded = slices.DeleteFunc(c.excluded, func(x pair) bool { return int(x.local) == local && int(x.remote) == remote })
	var regained Roles
	for role := range wireup.Aux {
		if c.lost.Has(role) && len(c.Plan(role)) > 0 {
			regained |= Set(role)
		}
	}
	c.lost &^= regained
	c.do(Action{Kind: ReturnLane, Lane: i, Roles: regained})
	c.moveRolesTo(i)
}

// moveRolesTo starts to move the roles for which lane i is better to that lane. A role that another lane has moves
// when nothing is in flight for it over that lane.
func (c *Conn) moveRolesTo(i int) {
	l := &c.lanes[i]
	var better Roles
	for role := range wireup.Aux {
		if c.count(role) > 0 && !l.roles.Has(role) && c.planned(role, nil, int(l.local), int(l.remote)) {
			better |= Set(role)
		}
	}
	free := better
	for j := range c.lanes {
		x := &c.lanes[j]
		if j == i || x.state != laneActive || x.trial || x.move.state != moveNone {
			continue
		}
		var roles Roles
		for role := range wireup.Aux {
			if better.Has(role) && x.roles.Has(role) && !c.planned(role, nil, int(x.local), int(x.remote)) {
				roles |= Set(role)
			}
		}
		if roles != 0 {
			free &^= roles
			x.move.state, x.move.roles, x.move.to = moveQuiescing, roles, i
			c.do(Action{Kind: QuiesceLane, Lane: j, Roles: roles})
		}
	}
	for role := range wireup.Aux { // bandwidth roles: lane i is added to the other lanes
		if free.Has(role) && sharedRoles.Has(role) && c.count(role) < c.p.Rails.Of(role) {
			l.roles |= Set(role)
		}
	}
	c.activate(i)
}

// continueReturns moves roles to lanes that have returned, from lanes that were not active when the trial ended.
func (c *Conn) continueReturns() {
	for i := range c.lanes {
		if l := &c.lanes[i]; l.returned && l.state == laneActive && c.idle.state == idleNone && c.isUsedBeside(i) {
			c.moveRolesTo(i)
		}
	}
}

// isUsedBeside reports whether a lane other than i has roles that do not move yet.
func (c *Conn) isUsedBeside(i int) bool {
	for j := range c.lanes {
		if x := &c.lanes[j]; j != i && x.state == laneActive && x.roles != 0 && !x.moving() {
			return true
		}
	}
	return false
}

// laneQuiesced handles LaneQuiesced: nothing is in flight over a lane for the roles that move. Roles without an order
// between messages move at once, the roles of active messages after MOVED.
func (c *Conn) laneQuiesced(i int) {
	if i < 0 || i >= MaxLanes || c.lanes[i].move.state != moveQuiescing {
		c.ignored++
		return
	}
	l := &c.lanes[i]
	if l.isIdle() {
		c.idleLaneQuiesced(l)
		return
	}
	c.moves = c.moves%maxNumber + 1
	l.move.state, l.move.number = moveSent, c.moves
	c.moveRolesFrom(i, l.move.roles&^amRoles)
	c.sendLanes(Move, []MsgLane{l.moveEntry()})
	c.timer = timer{} // restart it
}

// moveEntry returns the entry of a lane in MOVE, with the roles that do not move.
func (l *lane) moveEntry() MsgLane {
	return MsgLane{Src: l.local, Dst: l.remote, Roles: l.roles &^ l.move.roles, Status: l.move.number}
}

// moveRolesFrom moves roles of a lane to the lane of its move.
func (c *Conn) moveRolesFrom(from int, roles Roles) {
	x := &c.lanes[from]
	x.roles &^= roles
	x.active &^= roles
	x.move.roles &^= roles
	c.lanes[x.move.to].roles |= roles
	c.activate(x.move.to)
}

// handleMove handles MOVE: the caller must handle everything that has arrived over the lane; MOVED follows.
func (c *Conn) handleMove(m *Msg) {
	for k := range m.Lanes {
		e := &m.Lanes[k]
		if int(e.Dst) >= len(c.p.Local.Resources) || int(e.Src) >= len(c.p.Remote.Resources) {
			c.ignored++
			continue
		}
		c.do(Action{Kind: DrainLane, Local: int(e.Dst), Remote: int(e.Src), Status: e.Status})
		if i := c.find(int(e.Dst), int(e.Src)); i >= 0 && e.Roles == 0 {
			c.lanes[i].peerMoved = true
			c.abandonIfUnused(i)
		}
	}
}

// drained handles LaneDrained: it sends MOVED, with the roles for which this side uses the lane.
func (c *Conn) drained(local, remote int, number ucs.Status) {
	e := MsgLane{Src: uint8(local), Dst: uint8(remote), Status: number}
	if i := c.find(local, remote); i >= 0 {
		e.Roles = c.lanes[i].roles
	}
	c.sendLanes(Moved, []MsgLane{e})
}

// handleMoved handles MOVED: the peer has handled everything that this side had sent over a lane.
func (c *Conn) handleMoved(m *Msg) {
	for k := range m.Lanes {
		e := &m.Lanes[k]
		i := c.find(int(e.Dst), int(e.Src))
		if i < 0 || c.lanes[i].move.state != moveSent || c.lanes[i].move.number != e.Status {
			c.ignored++
			continue
		}
		c.moveRolesFrom(i, c.lanes[i].move.roles)
		l := &c.lanes[i]
		closes := l.move.closes && l.roles == 0
		l.move, l.peerMoved = move{}, l.peerMoved || e.Roles == 0
		if closes {
			c.dropped = append(c.dropped, l.entry(ucs.StatusOK))
			c.free(i, ucs.StatusOK)
			continue
		}
		c.abandonIfUnused(i)
	}
}

// abandonIfUnused abandons a lane without roles on either side.
func (c *Conn) abandonIfUnused(i int) {
	l := &c.lanes[i]
	if l.state == laneActive && l.peerMoved && l.roles == 0 && !l.moving() {
		c.abandon(i)
	}
}

// abandon stops the use of a lane without roles. Its EP is closed when the peer has abandoned the lane too.
func (c *Conn) abandon(i int) {
	l := &c.lanes[i]
	*l = lane{state: laneBroken, local: l.local, remote: l.remote}
	c.do(Action{Kind: RetireLane, Lane: i, Status: ucs.StatusOK})
	c.timer = timer{} // restart it
}

// handleAbandoned closes a lane that both sides have abandoned. If this side still moves roles from the lane,
// it closes the lane after MOVED. If this side uses the lane again, because the better one has failed in the meantime,
// the lane is treated as broken.
func (c *Conn) handleAbandoned(e *MsgLane) {
	i := c.find(int(e.Dst), int(e.Src))
	switch {
	case i < 0:
	case c.lanes[i].move.state != moveNone:
		c.lanes[i].move.closes = true
		return
	case c.lanes[i].roles != 0:
		c.free(i, ucs.StatusIOError)
	default:
		c.free(i, ucs.StatusOK)
	}
	c.dropped = append(c.dropped, MsgLane{Src: e.Dst, Dst: e.Src})
}

// cancelMovesTo cancels the moves of roles to lane i, which is gone. The roles remain on their lanes.
func (c *Conn) cancelMovesTo(i int) {
	for j := range c.lanes {
		x := &c.lanes[j]
		x.peerMoved = false // the peer may use the lane again too
		if x.move.state == moveNone || x.move.to != i {
			continue
		}
		x.active &^= x.move.roles
		x.move = move{}
		c.activate(j)
	}
}

// moving reports whether a lane is on trial or its roles move to another lane.
func (l *lane) moving() bool { return l.trial || l.move.state != moveNone }

// sendProbed sends the replies to PROBE.
func (c *Conn) sendProbed() {
	c.sendLanes(Probed, c.probed)
	c.probed = c.probed[:0]
}

// retransmitMoves retransmits PROBE and MOVE.
func (c *Conn) retransmitMoves() {
	for i := range c.lanes {
		switch l := &c.lanes[i]; {
		case l.trial && l.initiator && l.state == laneActive:
			c.probe(i)
		case l.move.state == moveSent:
			m := c.newMsg(Move)
			m.Lanes = []MsgLane{l.moveEntry()}
			c.do(Action{Kind: SendMsg, Msg: m, Again: true})
		}
	}
}

// Dispensable reports whether the handshakes in progress may end at any time: trials, and proposals to close the lanes of
// an idle connection. Without those, Quiet would be true.
func (c *Conn) Dispensable() bool {
	trial := c.idleHandshake()
	if c.idle.state == idleAgreed {
		return false
	}
	for i := range c.lanes {
		l := &c.lanes[i]
		trial = trial || l.trial
		if !l.trial && !l.isSteady() {
			return false
		}
	}
	for i := range c.excluded {
		if c.excluded[i].peer == peerPending {
			return false
		}
	}
	return trial
}

// closeTrials closes lanes on trial without a message to the peer.
func (c *Conn) closeTrials(st ucs.Status) {
	for i := range c.lanes {
		if c.lanes[i].trial {
			c.free(i, st)
		}
	}
}

// endTrials ends trials to which the peer does not reply. It reports whether roles of a lane move, for which
// retransmissions continue.
func (c *Conn) endTrials() (moving bool) {
	for i := range c.lanes {
		l := &c.lanes[i]
		moving = moving || l.move.state != moveNone && !l.isIdle()
		if l.trial {
			c.endTrial(i, ucs.StatusTimedOut)
		}
	}
	return moving
}

// endTrial closes a lane on trial. The peer is notified with a DROP. A lane that the peer may use already
// stays open until the peer has closed it.
func (c *Conn) endTrial(i int, st ucs.Status) {
	l := &c.lanes[i]
	if l.state == laneActive {
		c.retire(i, st)
		return
	}
	if x := c.exclusion(int(l.local), int(l.remote)); x != nil && l.state != laneOpening && l.state != laneOpened {
		x.peer, x.number = peerUnaware, l.number
	}
	c.free(i, st)
}
