package handshake

import (
	"cmp"
	"slices"

	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// handleMsg handles a message to this connection. It ignores entries that do not
// match the state of their lane: they are late, repeated or invalid.
func (c *Conn) handleMsg(m *Msg) {
	if !c.accepts(m) {
		c.ignored++
		return
	}
	if m.Type >= Probe && m.Type <= Moved && c.p.Retry <= 0 {
		c.ignored++
		return
	}
	if c.remoteEP == 0 {
		c.remoteEP, c.window = m.SrcEP, m.Window
		c.sendTo = m.SrcEP
		if c.p.Loopback {
			c.sendTo, c.window = c.p.LocalEP, c.p.Window
		}
	}
	if m.Type < Idle && m.Type != Disconnect && !c.closesIdle(m) {
		c.resume()
	}
	switch m.Type {
	case Request:
		c.handleRequest(m)
	case Reply:
		c.handleReply(m)
	case Ack:
		c.handleAck(m)
	case Drop:
		c.handleDrop(m)
	case Dropped:
		c.handleDropped(m)
	case Disconnect:
		c.handleDisconnect(m)
	case Probe:
		c.handleProbe(m)
	case Probed:
		c.handleProbed(m)
	case Move:
		c.handleMove(m)
	case Moved:
		c.handleMoved(m)
	case Idle, Agreed, Refused, Resume:
		c.handleIdleMsg(m)
	}
	c.activateAll()
}

// closesIdle reports whether a message closes the lanes of an idle connection, or confirms that.
func (c *Conn) closesIdle(m *Msg) bool {
	switch m.Type {
	case Drop:
		return c.p.Idle && m.Lanes[0].Status == ucs.StatusOK && m.Lanes[0].Roles != 0
	case Dropped:
		return true
	}
	return false
}

// handleDisconnect ends the connection: the peer has closed it, or it failed at the peer.
func (c *Conn) handleDisconnect(m *Msg) {
	for i := range m.Lanes {
		switch st := m.Lanes[i].Status; st {
		case ucs.StatusOK:
		case ucs.StatusNoResource:
			c.end(ucs.StatusRejected, "the peer accepts no more endpoints of this worker (MAX_EPS_PER_PEER of the peer)")
			return
		default:
			c.end(ucs.StatusConnReset, "failed at the peer, "+st.String())
			return
		}
	}
	c.end(ucs.StatusPeerClosed, "")
}

// accepts reports whether the message is from the peer and for this connection.
func (c *Conn) accepts(m *Msg) bool {
	if m.SrcUUID != c.p.Remote.UUID() || m.DstUUID != c.p.Local.UUID() {
		return false
	}
	if d := c.destination(); d != 0 && m.SrcEP != d {
		return false
	}
	if m.DstEP == 0 {
		return m.Type == Request || m.Type == Disconnect
	}
	return m.DstEP == c.p.LocalEP
}

// activateAll activates lanes that waited only for the peer's id of the connection.
func (c *Conn) activateAll() {
	for i := range c.lanes {
		if c.lanes[i].state == laneActive && !c.over {
			c.activate(i)
		}
	}
}

// propose sends one REQUEST for all lanes to propose, unless a lane of this side is still opening.
func (c *Conn) propose() {
	var m *Msg
	for i := range c.lanes {
		l := &c.lanes[i]
		if l.state == laneOpening && l.initiator {
			return
		}
		if l.state != laneOpened && !c.needsPeerEP(l) {
			continue
		}
		if m == nil {
			m = c.newMsg(Request)
		}
		m.Lanes = append(m.Lanes, l.proposal())
	}
	if m == nil {
		return
	}
	c.markProposed()
	if m.DstEP == 0 {
		m.Addr = c.p.PackedLocal
	}
	c.requestSent = true
	c.do(Action{Kind: SendMsg, Msg: m})
}

// needsPeerEP reports whether an active lane waits for the peer's id of the connection.
func (c *Conn) needsPeerEP(l *lane) bool {
	return l.state == laneActive && l.active != l.roles && c.remoteEP == 0
}

func (c *Conn) markProposed() {
	for i := range c.lanes {
		if l := &c.lanes[i]; l.state == laneOpened || c.needsPeerEP(l) {
			l.state, l.initiator = laneProposed, true
		}
	}
}

// entry describes the pair in a DROP.
func (x *pair) entry() MsgLane {
	return MsgLane{Src: x.local, Dst: x.remote, Roles: x.number, Status: x.reason}
}

// proposal describes the lane in a REQUEST. A lane on trial has the number of the trial as its status.
func (l *lane) proposal() MsgLane {
	e := l.entry(ucs.StatusOK)
	if l.trial {
		e.Roles, e.Status = l.proposed, ucs.Status(l.number)
	}
	return e
}

// trialOf returns the number of the trial that an entry of a REQUEST starts; 0 if it starts none, or if this side
// permits none.
func (c *Conn) trialOf(e *MsgLane) Roles {
	if c.p.Retry <= 0 {
		return 0
	}
	return Roles(e.Status) & laneRoles
}

// entry describes the lane in a message of this side.
func (l *lane) entry(st ucs.Status) MsgLane {
	return MsgLane{Src: l.local, Dst: l.remote, Roles: l.roles | l.number, Status: st, EPAddr: l.epAddr}
}

// handleRequest accepts or rejects each proposed lane.
func (c *Conn) handleRequest(m *Msg) {
	for i := range m.Lanes {
		c.evaluate(&m.Lanes[i])
	}
}

// evaluate accepts or rejects one proposed lane: a new one, one that this side has proposed
// too, or an existing one.
func (c *Conn) evaluate(e *MsgLane) {
	if st := c.validate(e); st != ucs.StatusOK {
		c.reject(e, st)
		return
	}
	i := c.find(int(e.Dst), int(e.Src))
	if t := c.trialOf(e); t != 0 {
		switch {
		case i >= 0 && !c.lanes[i].trial:
			c.reject(e, ucs.StatusNoResource) // the sender tries it later
			return
		case c.isLateTrial(t) && (i < 0 || c.lanes[i].number != t):
			c.ignored++
			return
		case i >= 0 && !c.lanes[i].initiator && c.lanes[i].number != t: // the sender has ended that trial
			c.free(i, ucs.StatusTimedOut)
			i = -1
		}
		c.peerTrial = t
	}
	if i < 0 {
		if i = c.open(int(e.Dst), int(e.Src), false); i < 0 {
			c.reject(e, ucs.StatusNoResource)
			return
		}
		c.lanes[i].trial = c.Excluded(int(e.Dst), int(e.Src))
		c.adopt(i, e)
		return
	}
	l := &c.lanes[i]
	if l.state == laneAccepted { // the REPLY may have been lost
		c.replies = append(c.replies, l.entry(ucs.StatusOK))
		return
	}
	if (l.state != laneActive || !l.viaIface) && (!l.initiator || l.state == laneActive || c.p.Local.UUID() < c.p.Remote.UUID()) {
		c.ignored++ // a retransmission, or the proposal of this side wins
		return
	}
	l.initiator = false
	c.adopt(i, e)
	if l.state != laneOpening {
		c.connect(i)
	}
}

// validate applies the criteria of this side, the responder, to a proposal.
func (c *Conn) validate(e *MsgLane) ucs.Status {
	if int(e.Dst) >= len(c.p.Local.Resources) || int(e.Src) >= len(c.p.Remote.Resources) {
		return ucs.StatusInvalidParam
	}
	l, r := &c.p.Local.Resources[e.Dst], &c.p.Remote.Resources[e.Src]
	if l.Transport != r.Transport || e.Roles == 0 || e.Roles.Has(wireup.Aux) {
		return ucs.StatusInvalidParam
	}
	for p := range wireup.Aux {
		if e.Roles.Has(p) && selection.Unfit(p, l, r) != "" {
			return ucs.StatusUnsupported
		}
	}
	if x := c.exclusion(int(e.Dst), int(e.Src)); x != nil {
		switch {
		case c.trialOf(e) == 0:
			return ucs.StatusRejected
		case x.peer != peerAware:
			return ucs.StatusNoResource // the sender tries it later
		}
	}
	if ok, _ := c.p.Reach(int(e.Dst), int(e.Src)); !ok {
		return ucs.StatusUnreachable
	}
	return ucs.StatusOK
}

func (c *Conn) reject(e *MsgLane, st ucs.Status) {
	r := MsgLane{Src: e.Dst, Dst: e.Src, Roles: e.Roles, Status: st}
	if t := c.trialOf(e); t != 0 {
		r.Roles = t
	}
	c.replies = append(c.replies, r)
}

// adopt stores the peer's EP address and uses the lane for the proposed roles that
// need lanes on this side.
func (c *Conn) adopt(i int, e *MsgLane) {
	l := &c.lanes[i]
	l.peerAddr = e.EPAddr
	if l.trial {
		l.number = c.trialOf(e)
		return
	}
	for role := range wireup.Aux {
		if e.Roles.Has(role) && c.count(role) < c.p.Rails.Of(role) {
			l.roles |= Set(role)
		}
	}
}

// reply sends one REPLY with all decisions when no lane that the peer proposed is opening or connecting.
func (c *Conn) reply() {
	if len(c.replies) == 0 || c.busy(false) {
		return
	}
	c.sendLanes(Reply, c.replies)
	c.replies = c.replies[:0]
}

// confirm sends one ACK when no accepted lane is connecting.
func (c *Conn) confirm() {
	if len(c.confirms) == 0 || c.busy(true) {
		return
	}
	c.sendLanes(Ack, c.confirms)
	c.confirms = c.confirms[:0]
}

// sendLanes sends copies of the entries, in as many messages as they need.
func (c *Conn) sendLanes(t MsgType, entries []MsgLane) {
	for part := range slices.Chunk(entries, MaxLanes) {
		m := c.newMsg(t)
		m.Lanes = slices.Clone(part)
		c.do(Action{Kind: SendMsg, Msg: m})
	}
}

// busy reports whether a lane that this side (initiator) or the peer proposed is opening or connecting,
// so that the REPLY or ACK for several lanes must wait.
func (c *Conn) busy(initiator bool) bool {
	for i := range c.lanes {
		l := &c.lanes[i]
		if l.initiator != initiator {
			continue
		}
		if l.state == laneConnecting || l.state == laneOpening && !initiator {
			return true
		}
	}
	return false
}

// handleReply connects the lanes that the peer accepted and replaces the lanes that it
// rejected. The ACK follows.
func (c *Conn) handleReply(m *Msg) {
	for k := range m.Lanes {
		e := &m.Lanes[k]
		i := c.find(int(e.Dst), int(e.Src))
		if i < 0 || c.lanes[i].state != laneProposed || c.over {
			c.handleRepeatedReply(i, e)
			continue
		}
		if l := &c.lanes[i]; l.trial && l.number != e.Roles && e.Status != ucs.StatusRejected {
			c.ignored++
			continue
		}
		if e.Status != ucs.StatusOK {
			c.stopRetriesIfRejected(&c.lanes[i], e.Status)
			c.drop(i, e.Status)
			continue
		}
		c.lanes[i].peerAddr = e.EPAddr
		c.connect(i)
	}
}

// handleRepeatedReply confirms a repeated REPLY, because the ACK to the first one may have been lost. It also
// confirms a lane to an iface that both sides have accepted, after their requests crossed.
// i is the lane of the entry; -1 if there is none.
func (c *Conn) handleRepeatedReply(i int, e *MsgLane) {
	switch {
	case c.over || e.Status != ucs.StatusOK || i >= 0 && c.lanes[i].trial && c.lanes[i].number != e.Roles:
		c.ignored++
	case i >= 0 && c.lanes[i].state == laneActive && (c.lanes[i].initiator || c.lanes[i].viaIface):
		c.confirms = append(c.confirms, c.lanes[i].entry(ucs.StatusOK))
	case i >= 0 && c.lanes[i].state == laneAccepted && c.lanes[i].viaIface:
		c.lanes[i].state = laneActive
		c.activate(i)
		c.confirms = append(c.confirms, c.lanes[i].entry(ucs.StatusOK))
	case i < 0 && c.Excluded(int(e.Dst), int(e.Src)):
		c.confirms = append(c.confirms, MsgLane{Src: e.Dst, Dst: e.Src, Roles: e.Roles, Status: c.lastErr})
	default:
		c.ignored++
	}
}

// handleAck activates the lanes that the initiator has connected.
func (c *Conn) handleAck(m *Msg) {
	for k := range m.Lanes {
		e := &m.Lanes[k]
		i := c.find(int(e.Dst), int(e.Src))
		if i < 0 || c.lanes[i].state != laneAccepted || c.over || c.lanes[i].trial && c.lanes[i].number != e.Roles {
			c.ignored++
			continue
		}
		if e.Status != ucs.StatusOK {
			c.drop(i, e.Status)
			continue
		}
		c.lanes[i].state = laneActive
		c.activate(i)
	}
}

// reportBroken sends a DROP for broken lanes and for excluded pairs of which the peer does not know,
// once remoteEP is known.
func (c *Conn) reportBroken() {
	var entries []MsgLane
	for i := range c.lanes {
		if l := &c.lanes[i]; l.state == laneBroken && !l.dropSent && c.remoteEP != 0 {
			l.dropSent = true
			entries = append(entries, l.entry(l.reason))
		}
	}
	for i := range c.excluded {
		if x := &c.excluded[i]; x.peer == peerUnaware && c.remoteEP != 0 {
			x.peer = peerPending
			entries = append(entries, x.entry())
			c.timer = timer{} // restart it
		}
	}
	c.sendLanes(Drop, entries)
	c.sendLanes(Dropped, c.dropped)
	c.dropped = c.dropped[:0]
}

// handleDrop closes lanes that broke at the peer, and confirms the DROP. It also excludes a pair that has no
// lane here: the lane is closed already, or the peer withdrew its proposal. All pairs of
// the message are excluded before new pairs are chosen.
func (c *Conn) handleDrop(m *Msg) {
	for k := range m.Lanes {
		e := &m.Lanes[k]
		l, r, st := int(e.Dst), int(e.Src), e.Status
		if l >= len(c.p.Local.Resources) || r >= len(c.p.Remote.Resources) {
			c.ignored++
			continue
		}
		number := e.Roles
		switch {
		case c.p.Idle && st == ucs.StatusOK && number != 0:
			c.handleIdleDrop(e)
			continue
		case c.p.Retry <= 0:
			number, st = 0, cmp.Or(st, ucs.StatusIOError)
		case st == ucs.StatusOK:
			c.handleAbandoned(e)
			continue
		}
		c.dropped = append(c.dropped, MsgLane{Src: e.Dst, Dst: e.Src, Status: st})
		var was lane
		if i := c.find(l, r); i >= 0 && (number == 0 || c.lanes[i].number == number) {
			st = cmp.Or(c.lanes[i].reason, st) // the reason of this side, if the lane broke on both
			was = c.lanes[i]
			c.free(i, st)
		}
		if number != 0 && c.find(l, r) >= 0 {
			continue // of an earlier trial
		}
		c.exclude(l, r, st, peerAware)
		c.enableRetry(&was)
		c.exclusion(l, r).peer = peerAware
	}
	c.replaceLanes()
}

// handleDropped closes broken lanes that the peer has closed.
func (c *Conn) handleDropped(m *Msg) {
	for k := range m.Lanes {
		l, r := int(m.Lanes[k].Dst), int(m.Lanes[k].Src)
		i, x := c.find(l, r), c.exclusion(l, r)
		switch {
		case i >= 0 && c.lanes[i].state == laneBroken:
			if st := c.lanes[i].reason; st != ucs.StatusOK {
				c.free(i, st)
				continue
			}
			if n := c.lanes[i].number; n != 0 && n != m.Lanes[k].Roles { // of an earlier DROP
				c.ignored++
				continue
			}
			c.free(i, ucs.StatusOK)
			c.replaceLanes()
		case x != nil && x.peer == peerPending:
			x.peer = peerAware
		default:
			c.ignored++
		}
	}
}
