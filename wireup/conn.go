package wireup

import (
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// laneState is how far a lane has come.
type laneState uint8

const (
	laneFree       laneState = iota // the slot is not used
	laneOpening                     // OpenLane was asked for
	laneOpened                      // the initiator's: has a uct EP, to be proposed
	laneProposed                    // the initiator's: REQUEST sent
	laneConnecting                  // ConnectLane was asked for
	laneAccepted                    // the responder's: REPLY made, waits for ACK
	laneActive
)

// lane is one pair of resources of a connection.
type lane struct {
	state         laneState
	initiator     bool
	viaIface      bool // connects to an iface address, not to an EP
	local, remote uint8
	purposes      Purposes // wanted of this lane by this side
	active        Purposes // told to the user of the Conn
	epAddr        []byte   // ours
	peerAddr      []byte   // the peer's
}

// ConnParams makes a [Conn].
type ConnParams struct {
	Local  *Address // not changed while the Conn is in use
	Remote *Address // not changed while the Conn is in use
	Reach  Reacher
	// PackedLocal is Local.Pack, for a peer that does not know us.
	PackedLocal []byte
	// LocalEP names the connection in this worker; never 0.
	LocalEP uint64
	// Seq counts the connections of this worker to that peer.
	Seq uint32
	// Timeout is how long this side waits for an answer of a peer before it fails
	// with StatusTimedOut; 0 means for ever.
	Timeout time.Duration
}

// Conn is the handshake of one connection: events in, actions out. The zero value
// is not usable; see [NewConn].
type Conn struct {
	p        ConnParams
	remoteEP uint64 // 0 until the peer has told
	lanes    [MaxLanes]lane
	byUse    [purposeEnd]int8 // lane of each purpose; -1 if none
	wanted   Purposes         // NeedLane was called for these
	excluded []pair           // refused or failed, not to be proposed again
	answers  []MsgLane        // entries of the REPLY that is being made
	confirms []MsgLane        // entries of the ACK that is being made
	asked    bool             // a REQUEST went out: the peer may know us
	over     bool             // failed or closed
	lastErr  ucs.Status       // why the latest pair was excluded
	ignored  int
	now      time.Duration // of the latest event
	timer    timer
	acts     []Action
}

type pair struct{ local, remote uint8 }

// NewConn makes a connection that has done nothing yet.
func NewConn(p ConnParams) *Conn {
	c := &Conn{p: p, lastErr: ucs.StatusUnreachable}
	for i := range c.byUse {
		c.byUse[i] = -1
	}
	return c
}

// RemoteEP is the peer's name for the connection; 0 if it is not known yet.
func (c *Conn) RemoteEP() uint64 { return c.remoteEP }

// Over reports that the connection has failed or was closed.
func (c *Conn) Over() bool { return c.over }

// Ignored counts messages and entries that came late, twice or made no sense.
func (c *Conn) Ignored() int { return c.ignored }

// Lane is the lane that is active for p; ok is false if there is none.
func (c *Conn) Lane(p Purpose) (lane int, ok bool) {
	i := c.byUse[p]
	if i < 0 || !c.lanes[i].active.Has(p) {
		return -1, false
	}
	return int(i), true
}

// Quiet reports that no handshake is under way: nothing will be sent or is
// expected until the next NeedLane.
func (c *Conn) Quiet() bool {
	for i := range c.lanes {
		l := &c.lanes[i]
		if l.state != laneFree && (l.state != laneActive || l.active != l.purposes) {
			return false
		}
	}
	return true
}

// Plan is the pair that would be proposed for p; ok is false if there is none.
func (c *Conn) Plan(p Purpose) (best Candidate, ok bool) {
	for _, cand := range Rank(p, c.p.Local, c.p.Remote, c.p.Reach) {
		if cand.Why == "" && !c.isExcluded(cand.Local, cand.Remote) {
			return cand, true
		}
	}
	return Candidate{}, false
}

func (c *Conn) isExcluded(l, r int) bool {
	for _, x := range c.excluded {
		if int(x.local) == l && int(x.remote) == r {
			return true
		}
	}
	return false
}

// Handle takes one event and returns what to do, in order. The slice is reused by
// the next call. After FailEP, and after Closed, events have no effect.
func (c *Conn) Handle(ev Event) []Action {
	c.acts = c.acts[:0]
	if c.over {
		return nil
	}
	c.now = max(c.now, ev.Now)
	before := c.states()
	switch ev.Kind {
	case NeedLane:
		c.wanted |= Set(ev.Purpose)
		c.need(ev.Purpose)
	case MsgReceived:
		c.message(ev.Msg)
	case LaneOpened:
		c.opened(ev.Lane, ev.EPAddr)
	case LaneConnected:
		c.connected(ev.Lane)
	case LaneFailed:
		c.laneFailed(ev.Lane, ev.Status)
	case Closed:
		c.close()
	case TimePassed:
		c.timePassed()
	case SendingFailed:
		c.repeat()
	}
	if !c.over {
		c.confirm()
		c.propose()
		c.reply()
	}
	c.wind(ev.Kind == MsgReceived && c.states() != before)
	return c.acts
}

func (c *Conn) do(a Action) { c.acts = append(c.acts, a) }

// need gives p a lane: one that exists already for the best pair, or a new one.
func (c *Conn) need(p Purpose) {
	if p >= Aux || c.byUse[p] >= 0 {
		return
	}
	best, ok := c.Plan(p)
	if !ok {
		c.fail(c.lastErr, "no lane left for "+p.String())
		return
	}
	if i := c.find(best.Local, best.Remote); i >= 0 {
		c.bind(i, p)
		c.activate(i)
		return
	}
	if i := c.open(best.Local, best.Remote, true); i >= 0 {
		c.bind(i, p)
		return
	}
	c.fail(ucs.StatusNoResource, "too many lanes")
}

func (c *Conn) bind(i int, p Purpose) {
	c.byUse[p] = int8(i)
	c.lanes[i].purposes |= Set(p)
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

// open starts a lane in a free slot; -1 if there is none.
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

// activate tells the purposes of a lane that can be used now. A lane that
// connects to an iface needs no handshake, except that the receiver of active
// messages must know the connection.
func (c *Conn) activate(i int) {
	l := &c.lanes[i]
	ready := l.purposes
	switch {
	case l.state == laneActive && (!l.viaIface || c.remoteEP != 0):
	case l.viaIface && l.state > laneOpening:
		ready &^= Set(AM)
	default:
		return
	}
	if ready &^= l.active; ready != 0 {
		l.active |= ready
		c.do(Action{Kind: ActivateLane, Lane: i, Purposes: ready})
	}
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
	case l.viaIface && (c.remoteEP != 0 || !l.purposes.Has(AM)):
		l.state = laneActive
		c.activate(i)
	default:
		l.state = laneOpened
		c.activate(i)
	}
}

// connect connects a lane to the EP that the peer has told; there is nothing to do
// where the lane connects to an iface.
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
		return
	}
	l.state = laneAccepted
	c.answers = append(c.answers, l.entry(ucs.StatusOK))
}

// laneFailed drops a lane that was still being set up, with the next best pair as
// its successor; a lane in use takes the connection with it, since what became of
// its operations is not known.
func (c *Conn) laneFailed(i int, st ucs.Status) {
	if i < 0 || i >= MaxLanes || c.lanes[i].state == laneFree {
		c.ignored++
		return
	}
	if st == ucs.StatusOK {
		st = ucs.StatusIOError
	}
	l := &c.lanes[i]
	switch {
	case l.active != 0 || l.state == laneActive || l.state == laneAccepted:
		c.fail(st, "lane failed")
		return
	case !l.initiator:
		c.answers = append(c.answers, l.entry(st))
	case l.state == laneConnecting:
		c.confirms = append(c.confirms, l.entry(st))
	}
	c.drop(i, st)
}

// drop gives up a lane and asks for successors of the purposes that it had here.
func (c *Conn) drop(i int, st ucs.Status) {
	gone := c.lanes[i]
	c.lastErr = st
	c.excluded = append(c.excluded, pair{gone.local, gone.remote})
	c.do(Action{Kind: CloseLane, Lane: i})
	c.lanes[i] = lane{}
	for p := range Aux {
		if c.byUse[p] == int8(i) {
			c.byUse[p] = -1
		}
	}
	for p := range Aux {
		if c.wanted.Has(p) && !c.over {
			c.need(p)
		}
	}
}

// fail ends the connection for a reason on this side.
func (c *Conn) fail(st ucs.Status, why string) {
	c.disconnect()
	c.end(st, why)
}

func (c *Conn) end(st ucs.Status, why string) {
	c.over = true
	c.do(Action{Kind: FailEP, Status: st, Why: why})
}

func (c *Conn) close() {
	c.disconnect()
	c.over = true
}

// disconnect tells the peer, if it may know of the connection.
func (c *Conn) disconnect() {
	if c.remoteEP != 0 || c.asked {
		c.do(Action{Kind: SendMsg, Msg: c.newMsg(Disconnect)})
	}
}

func (c *Conn) newMsg(t MsgType) *Msg {
	return &Msg{
		Type: t, Seq: c.p.Seq,
		SrcUUID: c.p.Local.UUID, DstUUID: c.p.Remote.UUID,
		SrcEP: c.p.LocalEP, DstEP: c.remoteEP,
	}
}
