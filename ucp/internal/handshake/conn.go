package handshake

import (
	"cmp"
	"time"

	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// laneState is the state of a lane.
type laneState uint8

const (
	laneFree       laneState = iota // the slot is not used
	laneOpening                     // the caller executes OpenLane
	laneOpened                      // initiator: has a uct EP, not proposed yet
	laneProposed                    // initiator: REQUEST sent
	laneConnecting                  // the caller executes ConnectLane
	laneAccepted                    // responder: REPLY sent or ready, waits for ACK
	laneActive
	laneBroken // failed; its EP stays open until the peer has confirmed the DROP
)

// lane is one pair of resources of a connection.
type lane struct {
	state         laneState
	initiator     bool
	viaIface      bool // connects to an iface address, not to an EP
	local, remote uint8
	roles         Roles      // for which this side uses the lane
	active        Roles      // reported by ActivateLane
	proposed      Roles      // for which a lane on trial is proposed
	trial         bool       // the pair has failed before and is not proven to work yet; the lane has no roles
	returned      bool       // a trial of the lane was successful
	number        Roles      // of the trial; messages carry it instead of roles
	peerMoved     bool       // the peer has moved its roles to another lane
	move          move       // of the roles to another lane
	dropSent      bool       // laneBroken: DROP was sent
	reason        ucs.Status // laneBroken; StatusOK if neither side uses the lane
	epAddr        []byte     // ours
	peerAddr      []byte     // the peer's
}

// ConnParams makes a [Conn].
type ConnParams struct {
	Local  *wireup.Address // not changed while the Conn is in use
	Remote *wireup.Address // not changed while the Conn is in use
	Reach  selection.Reacher
	// PackedLocal is Local.Pack, for a peer that does not know this worker.
	PackedLocal []byte
	// LocalEP is this worker's id of the connection; never 0.
	LocalEP uint64
	// PeerEP is the peer's id of the connection, if it is known without a
	// handshake and the peer waits for one; otherwise 0.
	PeerEP uint64
	// Loopback says that the peer is this worker: messages over the connection arrive at
	// the end that sent them. The other end only has lanes.
	Loopback bool
	// Seq counts the connections of this worker to that peer.
	Seq uint32
	// Window is sent to the peer, where RemoteWindow returns it.
	Window uint32
	// Rails limits the lanes of the bandwidth roles.
	Rails selection.Rails
	// Timeout is how long this side waits for a reply of the peer before it fails
	// with StatusTimedOut; 0 means without limit.
	Timeout time.Duration
	// Retry is the time from the failure of a lane until its pair is tried again; each further pause is
	// twice as long, up to 32 times Retry. 0 means never: this side also rejects trials of the peer, and ignores
	// the messages of trials and moves.
	Retry time.Duration
	// Idle permits that the lanes close while neither side has operations (NoOperations). Without it this side refuses
	// that its peer closes them.
	Idle bool
}

// Conn is the handshake of one connection: events in, actions out. The zero value
// is not usable; see [NewConn].
type Conn struct {
	p           ConnParams
	remoteEP    uint64 // 0 before the first message of the peer
	window      uint32 // in the first message of the peer
	sendTo      uint64 // remoteEP, or LocalEP of a loopback; 0 before the first message of the peer
	lanes       [MaxLanes]lane
	wanted      Roles      // NeedLane was called for these
	excluded    []pair     // not to be proposed again
	replies     []MsgLane  // entries of the next REPLY
	confirms    []MsgLane  // entries of the next ACK
	dropped     []MsgLane  // entries of the next DROPPED
	probed      []MsgLane  // entries of the next PROBED
	lost        Roles      // LoseRoles was reported for these
	trials      Roles      // number of the latest trial
	moves       ucs.Status // number of the latest MOVE
	peerTrial   Roles      // number of the latest trial of the peer; 0 for none
	idle        idle
	requestSent bool       // a REQUEST was sent: the peer may know this connection
	over        bool       // failed or closed
	lastErr     ucs.Status // why the latest pair was excluded
	ignored     int
	now         time.Duration // of the latest event
	timer       timer
	acts        []Action
}

// pair is an excluded pair of resources: one side rejected it, or a lane over it failed.
type pair struct {
	local, remote uint8
	reason        ucs.Status
	peer          peerState
	number        Roles // of the latest trial
	retry         retry
}

// peerState is whether the peer knows that a pair is excluded. A peer that does not know may propose the pair
// itself, and wait for a lane that fails.
type peerState uint8

const (
	peerAware   peerState = iota
	peerUnaware           // a DROP must be sent, once remoteEP is known
	peerPending           // a DROP was sent that the peer has not confirmed
)

// NewConn makes a connection that has done nothing yet.
func NewConn(p ConnParams) *Conn {
	return &Conn{p: p, lastErr: ucs.StatusUnreachable}
}

// RemoteEP is the peer's id of the connection; 0 if it is not known yet.
func (c *Conn) RemoteEP() uint64 { return c.remoteEP }

// RemoteWindow is the Window in the first message of the peer; 0 while RemoteEP is 0.
func (c *Conn) RemoteWindow() uint32 { return c.window }

// MessageEP is the id to which this side sends messages: RemoteEP, or LocalEP for a
// loopback; 0 before the first message of the peer.
func (c *Conn) MessageEP() uint64 { return c.sendTo }

// Loopback reports whether the messages of this end arrive on this end.
func (c *Conn) Loopback() bool { return c.p.Loopback }

// Over reports whether the connection has failed or was closed.
func (c *Conn) Over() bool { return c.over }

// Ignored counts messages and entries that were late, repeated or invalid.
func (c *Conn) Ignored() int { return c.ignored }

// Share is one lane of a role and its share of the data.
type Share struct {
	Lane   int
	Weight uint64 // its bandwidth in bytes per second; the same at the peer
}

// Lanes returns the lanes that are active for a role; more than one only for a bandwidth
// role.
func (c *Conn) Lanes(role wireup.Role) (lanes []Share) {
	for i := range c.lanes {
		if l := &c.lanes[i]; l.active.Has(role) {
			w := selection.Bandwidth(role, &c.p.Local.Resources[l.local], &c.p.Remote.Resources[l.remote])
			lanes = append(lanes, Share{i, w})
		}
	}
	return lanes
}

// active reports whether a role has an active lane.
func (c *Conn) active(role wireup.Role) bool {
	for i := range c.lanes {
		if c.lanes[i].active.Has(role) {
			return true
		}
	}
	return false
}

// count returns the number of lanes of a role, in any state.
func (c *Conn) count(role wireup.Role) (n int) {
	for i := range c.lanes {
		if c.lanes[i].roles.Has(role) {
			n++
		}
	}
	return n
}

// Survives reports whether the connection survives a failure of the lane. It does if other pairs can have
// all roles of the lane. If some roles are lost, active messages must not be among them,
// and another pair must get one of the other roles, or another useful lane must remain.
func (c *Conn) Survives(lane int) bool {
	x := &c.lanes[lane]
	had := x.roles & c.wanted &^ sharedRoles
	lost := had
	for role := range wireup.Aux {
		if lost.Has(role) && len(c.plan(role, selection.Rails{}, x)) > 0 {
			lost &^= Set(role)
		}
	}
	return lost == 0 || !lost.Has(wireup.AM) && (lost != had || c.hasUsefulLane(x))
}

// hasUsefulLane reports whether there is a lane other than except, which may be nil, that this side needs for
// more than bandwidth, or that the peer proposed.
func (c *Conn) hasUsefulLane(except *lane) bool {
	for i := range c.lanes {
		l := &c.lanes[i]
		if l != except && l.state != laneFree && l.state != laneBroken && !l.trial && (l.roles&^sharedRoles != 0 || !l.initiator) {
			return true
		}
	}
	return false
}

// Quiet reports whether no handshake is in progress: until the next NeedLane, this side sends no
// message and expects none.
func (c *Conn) Quiet() bool {
	return !c.idleHandshake() && c.isSteady()
}

// Plan returns the pairs that this side would propose for a role, best first.
func (c *Conn) Plan(role wireup.Role) []selection.Candidate { return c.plan(role, c.p.Rails, nil) }

// plan chooses pairs for a role, without the pair of lane except, which may be nil.
func (c *Conn) plan(role wireup.Role, rails selection.Rails, except *lane) []selection.Candidate {
	ranked := selection.Rank(role, c.p.Local, c.p.Remote, c.p.Reach)
	return selection.Choose(role, c.p.Local, c.p.Remote, ranked, rails, func(l, r int) bool {
		return c.Excluded(l, r) || except != nil && int(except.local) == l && int(except.remote) == r
	})
}

// Excluded reports whether a lane over a pair of resources failed or was rejected, so that no further
// lane is opened over it.
func (c *Conn) Excluded(local, remote int) bool { return c.exclusion(local, remote) != nil }

// exclusion returns the entry of an excluded pair; nil if the pair is not excluded.
func (c *Conn) exclusion(l, r int) *pair {
	for i := range c.excluded {
		if x := &c.excluded[i]; int(x.local) == l && int(x.remote) == r {
			return x
		}
	}
	return nil
}

// Handle handles one event and returns the actions that the caller must execute, in order. The next call
// reuses the slice. After FailEP, and after Closed, events have no effect.
func (c *Conn) Handle(ev Event) []Action {
	c.acts = c.acts[:0]
	if c.over {
		return nil
	}
	c.now = max(c.now, ev.Now)
	before, waited := c.states(), c.waitsForLane()
	switch ev.Kind {
	case NeedLane:
		c.needLane(ev.Role)
	case MsgReceived:
		c.handleMsg(ev.Msg)
	case LaneOpened:
		c.opened(ev.Lane, ev.EPAddr)
	case LaneConnected:
		c.connected(ev.Lane)
	case LaneFailed:
		c.laneFailed(ev.Lane, ev.Status)
		if !c.over {
			c.resume()
		}
	case NoCarrier:
		c.closeTrials(ev.Status)
		c.endIdleHandshake(ev.Status)
	case PathFailed:
		c.pathFailed(ev.Local, ev.Remote, ev.Status)
	case Closed:
		c.close(ev.Status)
	case TimePassed:
		c.timePassed()
	case SendingFailed:
		c.retransmitNow()
	case LaneQuiesced:
		c.laneQuiesced(ev.Lane)
	case LaneDrained:
		c.drained(ev.Local, ev.Remote, ev.Status)
	case NoOperations:
		c.noOperations()
	case IdleChecked:
		c.idleChecked(ev.Status)
	}
	if !c.over {
		c.continueReturns()
		c.postponeEndedTrials()
		c.sendProbed()
		c.reportBroken()
		c.confirm()
		c.propose()
		c.reply()
	}
	progressed := ev.Kind == MsgReceived && c.states() != before
	c.restartTimer(progressed || !waited && c.waitsForLane())
	return c.acts
}

func (c *Conn) do(a Action) { c.acts = append(c.acts, a) }

// needLane handles NeedLane. While the peer may close the lanes, the role waits.
func (c *Conn) needLane(role wireup.Role) {
	c.wanted |= Set(role)
	c.resume()
	if c.idle.state == idleNone && !c.over {
		c.loseRoles(c.assignLanes(role))
	}
}

// assignLanes assigns lanes to a role: existing lanes of the best pairs, and new
// ones. It returns the role if it must have a lane and has none.
func (c *Conn) assignLanes(role wireup.Role) (lost Roles) {
	limit := c.p.Rails.Of(role)
	if role >= wireup.Aux {
		return 0
	}
	for _, best := range c.Plan(role) {
		if c.count(role) >= limit {
			return 0
		}
		i := c.find(best.Local, best.Remote)
		if i >= 0 && c.lanes[i].state == laneBroken { // replaceLanes opens another when the peer has confirmed the DROP
			return 0
		}
		if i >= 0 {
			c.lanes[i].roles |= Set(role)
			c.activate(i)
			continue
		}
		if i = c.open(best.Local, best.Remote, true); i >= 0 {
			c.lanes[i].roles |= Set(role)
		} else if c.count(role) == 0 && !sharedRoles.Has(role) {
			c.fail(ucs.StatusNoResource, "too many lanes")
			return 0
		}
	}
	if c.count(role) == 0 && !sharedRoles.Has(role) {
		return Set(role)
	}
	return 0
}

// loseRoles removes roles that have no pair left. If active messages are among them, or if no other
// useful lane remains, it fails the connection.
func (c *Conn) loseRoles(roles Roles) {
	if roles == 0 || c.over {
		return
	}
	if c.wanted &^= roles; !roles.Has(wireup.AM) && c.hasUsefulLane(nil) {
		c.lost |= roles
		c.do(Action{Kind: LoseRoles, Roles: roles, Status: c.lastErr})
		return
	}
	c.fail(c.lastErr, "no lane left for "+roles.String())
}

// find returns the lane of a pair, or -1.
func (c *Conn) find(l, r int) int {
	for i := range c.lanes {
		if x := &c.lanes[i]; x.state != laneFree && int(x.local) == l && int(x.remote) == r {
			return i
		}
	}
	return -1
}

// open starts a lane in a free slot and returns its index; -1 if no slot is free.
func (c *Conn) open(l, r int, initiator bool) int {
	for i := range c.lanes {
		if c.lanes[i].state != laneFree {
			continue
		}
		caps := c.p.Local.Resources[l].Caps & c.p.Remote.Resources[r].Caps
		c.lanes[i] = lane{
			state: laneOpening, initiator: initiator, local: uint8(l), remote: uint8(r),
			viaIface: caps.Has(uct.CapConnectIface),
		}
		c.do(Action{Kind: OpenLane, Lane: i, Local: l, Remote: r, ViaIface: c.lanes[i].viaIface})
		return i
	}
	return -1
}

// activate activates a lane for the roles for which it can be used now. A lane that
// connects to an iface needs no handshake, but the receiver of active
// messages must know the connection.
func (c *Conn) activate(i int) {
	if c.idle.state != idleNone { // see returnRoles
		return
	}
	l := &c.lanes[i]
	ready := l.roles
	switch {
	case l.state == laneActive && (!l.viaIface || c.remoteEP != 0):
	case l.viaIface && l.state > laneOpening && l.state != laneBroken:
		ready &^= amRoles
	default:
		return
	}
	if c.hasBrokenLane() {
		ready &^= amRoles
	}
	if ready &^= l.active | l.move.roles; ready != 0 { // roles that move from the lane are not activated again
		l.active |= ready
		c.do(Action{Kind: ActivateLane, Lane: i, Roles: ready})
	}
}

// hasBrokenLane reports whether the peer may still use a lane that broke here. Then no lane is activated for
// messages, because replies that the peer sends over the broken lane would be lost.
func (c *Conn) hasBrokenLane() bool {
	for i := range c.lanes {
		if l := &c.lanes[i]; l.state == laneBroken && l.reason != ucs.StatusOK {
			return true
		}
	}
	return false
}

func (c *Conn) opened(i int, epAddr []byte) {
	if i < 0 || i >= MaxLanes || c.lanes[i].state != laneOpening {
		c.ignored++
		return
	}
	l := &c.lanes[i]
	l.epAddr = append([]byte(nil), epAddr...)
	switch {
	case !l.initiator:
		c.connect(i)
	case l.viaIface && !l.trial && (c.remoteEP != 0 || l.roles&amRoles == 0):
		l.state = laneActive
		c.activate(i)
	default:
		l.state = laneOpened
		c.activate(i)
	}
}

// connect connects a lane to the peer's EP address; a lane to an iface is connected
// already.
func (c *Conn) connect(i int) {
	l := &c.lanes[i]
	l.state = laneConnecting
	if l.viaIface {
		c.connected(i)
		return
	}
	c.do(Action{Kind: ConnectLane, Lane: i, EPAddr: l.peerAddr})
}

func (c *Conn) connected(i int) {
	if i < 0 || i >= MaxLanes || c.lanes[i].state != laneConnecting {
		c.ignored++
		return
	}
	l := &c.lanes[i]
	if l.initiator {
		l.state = laneActive
		c.activate(i)
		c.confirms = append(c.confirms, l.entry(ucs.StatusOK))
		if l.trial {
			c.probe(i)
		}
		return
	}
	l.state = laneAccepted
	c.replies = append(c.replies, l.entry(ucs.StatusOK))
}

// laneFailed closes a lane that could not be connected, or retires a lane that broke, and opens the
// next best pair as its successor. If the reason is that the peer is gone, the connection fails.
func (c *Conn) laneFailed(i int, st ucs.Status) {
	if i < 0 || i >= MaxLanes || c.lanes[i].state == laneFree || c.lanes[i].state == laneBroken {
		c.ignored++
		return
	}
	if st == ucs.StatusOK {
		st = ucs.StatusIOError
	}
	l := &c.lanes[i]
	up := l.state == laneActive || l.state == laneAccepted
	peer := peerAware
	switch {
	case (up || l.active != 0) && PeerGone(st) && !l.trial:
		c.fail(st, "lane failed")
		return
	case up && c.remoteEP != 0: // the peer may use the lane
		c.retire(i, st)
		return
	case !l.initiator && l.state != laneActive:
		c.replies = append(c.replies, l.entry(st))
	case l.state == laneConnecting:
		c.confirms = append(c.confirms, l.entry(st))
	case l.trial:
		c.endTrial(i, st)
		return
	default:
		peer = peerUnaware
	}
	c.dropAs(i, st, peer)
}

// pathFailed excludes a pair after a transport connection failed that belongs to no lane.
// If the pair has a lane, only a failure of the lane excludes it.
func (c *Conn) pathFailed(l, r int, st ucs.Status) {
	if c.find(l, r) < 0 {
		c.exclude(l, r, st, peerUnaware)
	}
}

// PeerGone reports whether a status means that the peer is gone. Any other status concerns one lane, also
// StatusUnreachable, because another network device may reach the peer.
func PeerGone(st ucs.Status) bool { return st == ucs.StatusConnReset || st == ucs.StatusPeerClosed }

// retire stops the use of a lane that the peer may use too. Its EP is closed after the
// peer has confirmed the DROP, because the peer would take an earlier close for the end of the connection.
func (c *Conn) retire(i int, st ucs.Status) {
	l := &c.lanes[i]
	was := *l
	c.cancelMovesTo(i)
	*l = lane{state: laneBroken, local: l.local, remote: l.remote, reason: st, number: l.number}
	c.do(Action{Kind: RetireLane, Lane: i, Status: st})
	c.timer = timer{}                                     // restart it
	c.exclude(int(l.local), int(l.remote), st, peerAware) // by the DROP of the lane
	c.enableRetry(&was)
	c.replaceLanes()
}

// drop closes a lane that the peer knows to be closed.
func (c *Conn) drop(i int, st ucs.Status) { c.dropAs(i, st, peerAware) }

// dropAs closes a lane that the peer does not use.
func (c *Conn) dropAs(i int, st ucs.Status, peer peerState) {
	gone := c.lanes[i]
	c.free(i, st)
	c.exclude(int(gone.local), int(gone.remote), st, peer)
	c.replaceLanes()
}

func (c *Conn) free(i int, st ucs.Status) {
	if st != ucs.StatusOK { // otherwise both sides have abandoned the lane, and no role moves to it
		c.cancelMovesTo(i)
	}
	c.lanes[i] = lane{}
	c.do(Action{Kind: CloseLane, Lane: i, Status: st})
}

// exclude prevents further lanes over a pair. It does not change the peerState of a pair that is excluded already.
func (c *Conn) exclude(l, r int, st ucs.Status, peer peerState) {
	c.lastErr = st
	if c.exclusion(l, r) == nil {
		c.excluded = append(c.excluded, pair{local: uint8(l), remote: uint8(r), reason: st, peer: peer})
	}
}

// replaceLanes opens new lanes for the roles that have lost theirs.
func (c *Conn) replaceLanes() {
	var lost Roles
	for role := range wireup.Aux {
		if c.wanted.Has(role) && !c.over {
			lost |= c.assignLanes(role)
		}
	}
	c.loseRoles(lost)
}

// fail fails the connection for a reason on this side.
func (c *Conn) fail(st ucs.Status, why string) {
	c.disconnect(MsgLane{Status: st})
	c.end(st, why)
}

func (c *Conn) end(st ucs.Status, why string) {
	c.over = true
	c.do(Action{Kind: FailEP, Status: st, Why: why})
}

func (c *Conn) close(st ucs.Status) {
	if st == ucs.StatusOK {
		c.disconnect()
	} else {
		c.disconnect(MsgLane{Status: st})
	}
	c.over = true
}

// disconnect sends a DISCONNECT, with the reason of a failure, if the peer may know the
// connection.
func (c *Conn) disconnect(failed ...MsgLane) {
	if c.destination() != 0 || c.requestSent {
		m := c.newMsg(Disconnect)
		m.Lanes = failed
		c.do(Action{Kind: SendMsg, Msg: m})
	}
}

func (c *Conn) newMsg(t MsgType) *Msg {
	return &Msg{
		Type: t, Seq: c.p.Seq,
		SrcUUID: c.p.Local.UUID(), DstUUID: c.p.Remote.UUID(),
		SrcEP: c.p.LocalEP, DstEP: c.destination(), Window: c.p.Window,
	}
}

// destination returns the peer's id of the connection; 0 if this side does not know it. The peer may not
// know the id of this side yet.
func (c *Conn) destination() uint64 { return cmp.Or(c.remoteEP, c.p.PeerEP) }
