package handshake

import "github.com/gucx/gucx/ucs"

// idleState is the progress of closing the lanes of a connection without operations.
type idleState uint8

const (
	idleNone      idleState = iota
	idleQuiescing           // the caller executes QuiesceLane for all lanes
	idleQuiesced            // nothing is in flight over any lane; the peer does not know
	idleProposed            // IDLE sent, waits for AGREED or REFUSED
	idleChecking            // the peer has agreed; the caller executes CheckIdle, then the lanes close
	idleAccepting           // the peer has sent IDLE; the caller executes CheckIdle
	idleAgreed              // AGREED sent: waits until the peer closes the lanes or sends RESUME
)

// noLane is move.to of the roles of an idle connection.
const noLane = -1

// idle is the state of a connection whose lanes close because it has no operations.
type idle struct {
	state  idleState
	wanted Roles // Conn.wanted before the lanes were quiesced
	number Roles // of the latest IDLE of this side
	peer   Roles // of the IDLE of the peer in idleAccepting and idleAgreed
}

// isIdle reports whether the lane is quiesced, or will be, because the connection is idle.
func (l *lane) isIdle() bool { return l.move.state != moveNone && l.move.to == noLane }

// noOperations handles NoOperations: first this side quiesces its lanes, then it proposes to close them.
func (c *Conn) noOperations() {
	switch {
	case !c.p.Idle || c.p.Loopback:
	case c.idle.state == idleNone && c.Quiet():
		c.quiesceAll()
	case c.idle.state == idleQuiesced && c.isSteady():
		if c.remoteEP == 0 { // the peer has no lanes
			c.closeAll()
			return
		}
		c.idle.state, c.idle.number = idleProposed, c.idle.number%laneRoles+1
		c.sendIdle(Idle, c.idle.number, false)
	}
}

// quiesceAll quiesces all lanes. From then on an operation causes NeedLane.
func (c *Conn) quiesceAll() {
	for i := range c.lanes {
		if l := &c.lanes[i]; l.state == laneActive {
			c.idle.state = idleQuiescing
			l.move, l.active = move{state: moveQuiescing, roles: l.roles, to: noLane}, 0
			c.do(Action{Kind: QuiesceLane, Lane: i, Roles: l.roles})
		}
	}
	if c.idle.state == idleQuiescing {
		c.idle.wanted, c.wanted = c.wanted, 0
	}
}

// idleLaneQuiesced is laneQuiesced for a lane of an idle connection.
func (c *Conn) idleLaneQuiesced(l *lane) {
	l.move.state = moveQuiesced
	for i := range c.lanes {
		if c.lanes[i].isIdle() && c.lanes[i].move.state != moveQuiesced {
			return
		}
	}
	if c.idle.state == idleQuiescing {
		c.idle.state = idleQuiesced
	}
}

// hasLanes reports whether the connection has a lane, in any state.
func (c *Conn) hasLanes() bool {
	for i := range c.lanes {
		if c.lanes[i].state != laneFree {
			return true
		}
	}
	return false
}

// isSteady reports whether no lane needs or awaits a message.
func (c *Conn) isSteady() bool {
	for i := range c.lanes {
		if !c.lanes[i].isSteady() {
			return false
		}
	}
	for i := range c.excluded {
		if c.excluded[i].peer == peerPending {
			return false
		}
	}
	return true
}

// isSteady reports whether the lane needs no message and waits for none.
func (l *lane) isSteady() bool {
	return l.state == laneFree || l.state == laneActive && (l.isIdle() || l.active == l.roles && !l.moving())
}

// idleHandshake reports whether a message about the end of the lanes was sent or is expected.
func (c *Conn) idleHandshake() bool { return c.idle.state >= idleProposed }

// sendIdle sends a message with the number of an IDLE.
func (c *Conn) sendIdle(t MsgType, number Roles, again bool) {
	m := c.newMsg(t)
	m.Lanes = []MsgLane{{Status: ucs.Status(number)}}
	c.do(Action{Kind: SendMsg, Msg: m, Again: again})
}

// resume uses the lanes again: an operation needs one, or the state of one has changed. If the peer may close the
// lanes at any time, the connection must wait until the peer has decided.
func (c *Conn) resume() {
	switch c.idle.state {
	case idleNone, idleAgreed:
		return
	case idleProposed, idleChecking:
		c.sendIdle(Resume, c.idle.number, false)
	case idleAccepting:
		c.sendIdle(Refused, c.idle.peer, false)
	}
	c.returnRoles()
}

// returnRoles returns their roles to the lanes.
func (c *Conn) returnRoles() {
	c.wanted |= c.idle.wanted
	c.idle.state, c.idle.wanted = idleNone, 0
	for i := range c.lanes {
		if l := &c.lanes[i]; l.isIdle() {
			l.move = move{}
		}
	}
	for i := range c.lanes {
		if l := &c.lanes[i]; l.state != laneFree && !c.over {
			c.activate(i)
		}
	}
	c.replaceLanes()
}

// closeAll closes the lanes: at once if the peer has none, otherwise when it has closed its lanes.
func (c *Conn) closeAll() {
	c.do(Action{Kind: WentIdle})
	number := c.idle.number
	for i := range c.lanes {
		l := &c.lanes[i]
		switch {
		case l.state == laneFree:
		case c.remoteEP == 0:
			c.free(i, ucs.StatusOK)
		default:
			c.abandon(i)
			c.lanes[i].number = number
		}
	}
	c.idle.state, c.idle.wanted = idleNone, 0
	c.timer = timer{} // restart it
}

// handleIdleMsg handles a message about the end of the lanes.
func (c *Conn) handleIdleMsg(m *Msg) {
	n := Roles(m.Lanes[0].Status) & laneRoles
	switch m.Type {
	case Idle:
		c.handleIdle(n)
	case Agreed:
		c.handleAgreed(n)
	case Refused:
		if c.idle.state == idleProposed && c.idle.number == n {
			c.keepLanes(ucs.StatusOK)
		}
	case Resume:
		if (c.idle.state == idleAgreed || c.idle.state == idleAccepting) && c.idle.peer == n {
			c.keepLanes(ucs.StatusOK)
		}
	}
}

// keepLanes ends the handshake of an idle connection: the lanes remain open. If an operation has waited for the decision,
// it uses them. Status says whether the peer has replied.
func (c *Conn) keepLanes(st ucs.Status) {
	proposed := c.idle.state == idleProposed
	c.idle.state = idleQuiesced
	if proposed {
		c.do(Action{Kind: KeepLanes, Status: st})
	}
	switch {
	case c.wanted != 0 || !c.isSteady(): // a lane may have been opened meanwhile
		c.returnRoles()
	case !c.hasLanes():
		c.idle.state = idleNone
	}
}

// handleIdle handles IDLE. This side agrees only if its lanes are quiesced too, or if it has none. If both sides have sent
// IDLE, the IDLE of the worker with the smaller UUID counts.
func (c *Conn) handleIdle(n Roles) {
	switch c.idle.state {
	case idleAgreed:
		if c.idle.peer == n { // AGREED may have been lost
			c.sendIdle(Agreed, n, false)
			return
		}
	case idleAccepting:
		if c.idle.peer == n {
			return
		}
	case idleProposed:
		if c.p.Local.UUID() < c.p.Remote.UUID() {
			c.ignored++
			return
		}
	case idleChecking: // late
		c.ignored++
		return
	}
	if !c.p.Idle || c.idle.state < idleQuiesced && c.hasLanes() || !c.isSteady() {
		c.sendIdle(Refused, n, false)
		return
	}
	c.idle.state, c.idle.peer = idleAccepting, n
	c.do(Action{Kind: CheckIdle})
}

// handleAgreed handles AGREED. What the peer has sent before may still have to be handled.
func (c *Conn) handleAgreed(n Roles) {
	switch {
	case c.idle.number == n && c.idle.state == idleProposed:
		c.idle.state = idleChecking
		c.do(Action{Kind: CheckIdle})
	case c.idle.number == n && c.idle.state == idleChecking: // repeated
	case c.isClosing(n): // the DROP may have been lost
		c.timer.repeat, c.timer.pause = min(c.timer.repeat, c.now+firstPause), firstPause
	default: // the peer waits for a decision
		c.sendIdle(Resume, n, false)
	}
}

// closesIdle reports whether the lane waits until the peer has closed it, because the connection is idle.
func (l *lane) closesIdle() bool {
	return l.state == laneBroken && l.reason == ucs.StatusOK && l.number != 0
}

// isClosing reports whether lanes wait until the peer has closed them, after the IDLE with this number.
func (c *Conn) isClosing(n Roles) bool {
	for i := range c.lanes {
		if l := &c.lanes[i]; l.closesIdle() && l.number == n {
			return true
		}
	}
	return false
}

// idleChecked handles the result of CheckIdle. Any status but StatusOK means that the side is not idle any more.
func (c *Conn) idleChecked(st ucs.Status) {
	idle := st == ucs.StatusOK && c.isSteady()
	switch {
	case c.idle.state == idleChecking && idle:
		c.closeAll()
	case c.idle.state == idleChecking:
		c.sendIdle(Resume, c.idle.number, false)
		c.keepLanes(ucs.StatusOK)
	case c.idle.state == idleAccepting && idle:
		c.idle.state = idleAgreed
		c.sendIdle(Agreed, c.idle.peer, false)
	case c.idle.state == idleAccepting:
		c.sendIdle(Refused, c.idle.peer, false)
		c.keepLanes(ucs.StatusOK)
	}
}

// handleIdleDrop handles a DROP that closes idle lanes: the peer has received AGREED and does not use the lanes any more.
// The reply to a repeated DROP is the same.
func (c *Conn) handleIdleDrop(e *MsgLane) {
	if c.idle.state == idleAgreed && c.idle.peer == e.Roles {
		c.do(Action{Kind: WentIdle})
		for i := range c.lanes {
			if c.lanes[i].isIdle() {
				c.free(i, ucs.StatusOK)
			}
		}
		c.idle.state, c.idle.wanted = idleNone, 0
	}
	c.dropped = append(c.dropped, MsgLane{Src: e.Dst, Dst: e.Src, Roles: e.Roles})
}

// retransmitIdle retransmits IDLE or AGREED.
func (c *Conn) retransmitIdle() {
	switch c.idle.state {
	case idleProposed:
		c.sendIdle(Idle, c.idle.number, true)
	case idleAgreed:
		c.sendIdle(Agreed, c.idle.peer, true)
	}
}

// endIdleHandshake ends a handshake without a reply of the peer. It reports whether the peer must decide, so that
// retransmissions continue.
func (c *Conn) endIdleHandshake(st ucs.Status) (waits bool) {
	switch c.idle.state {
	case idleProposed, idleChecking:
		c.idle.state = idleProposed
		c.sendIdle(Resume, c.idle.number, false)
		c.keepLanes(st)
	case idleAccepting:
		c.keepLanes(st)
	}
	return c.idle.state == idleAgreed
}
