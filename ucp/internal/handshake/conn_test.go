package handshake

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv/workeraddr"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// settle delivers messages until none is left.
func settle(t testing.TB, a, b *side) {
	for len(a.inbox)+len(b.inbox) > 0 {
		for _, s := range []*side{a, b} {
			if len(s.inbox) > 0 {
				s.deliver(t)
			}
		}
	}
}

// TestConn_SidesAgreeOnLanes: with random needs, message orders and failures to open lanes, both sides
// end with the same lanes, each connected to its other end, or both fail.
func TestConn_SidesAgreeOnLanes(t *testing.T) {
	kinds := []string{"rc", "rc", "ud", "sm", "rc@x"}
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfN(rapid.SampledFrom(kinds), 1, 5)
		uuidA, uuidB := uint64(1), uint64(2)
		if rapid.Bool().Draw(rt, "exchange uuids") {
			uuidA, uuidB = 2, 1
		}
		a, b := link(t, workeraddr.Make(t, uuidA, names.Draw(rt, "a")...), workeraddr.Make(t, uuidB, names.Draw(rt, "b")...))
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			s := a
			if rapid.Bool().Draw(rt, "side b") {
				s = b
			}
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				s.handle(Event{Kind: NeedLane, Role: rapid.SampledFrom([]wireup.Role{wireup.RMA, wireup.AMO, wireup.AM}).Draw(rt, "role")})
			case 1:
				what := rapid.SampledFrom([]string{"open rc", "connect rc", "open sm"}).Draw(rt, "failure")
				s.fails[what] = true
			default:
				if len(s.inbox) > 0 {
					s.deliver(t)
				}
			}
		}
		settle(t, a, b)
		checkAgreement(rt, a, b)
	})
}

func checkAgreement(t *rapid.T, a, b *side) {
	if a.err != ucs.StatusOK || b.err != ucs.StatusOK {
		return
	}
	assert.True(t, a.conn.Quiet(), "a: %s", a.state())
	assert.True(t, b.conn.Quiet(), "b: %s", b.state())
	for _, s := range []*side{a, b} {
		for i := range s.lanes {
			l := &s.lanes[i]
			if !l.open || l.addr == "" {
				continue
			}
			require.NotEmpty(t, l.peer, "a lane that was never connected: %s", s.state())
			k := s.peer.laneWith(l.peer)
			require.GreaterOrEqual(t, k, 0, "%s, %s", s.state(), s.peer.state())
			assert.Equal(t, l.addr, s.peer.lanes[k].peer)
			assert.Equal(t, l.transport, s.peer.lanes[k].transport)
		}
		for p := range wireup.Aux {
			if s.conn.wanted.Has(p) {
				assert.NotEmpty(t, s.conn.Lanes(p), "%v was needed: %s", p, s.state())
			}
		}
	}
}

func (s *side) laneWith(addr string) int {
	for i := range s.lanes {
		if s.lanes[i].open && s.lanes[i].addr == addr {
			return i
		}
	}
	return -1
}

// TestConn_FailureSendsDisconnect: a failure on one side ends the connection on both sides.
func TestConn_FailureSendsDisconnect(t *testing.T) {
	a, b := link(t, workeraddr.Make(t, 1, "rc", "ud"), workeraddr.Make(t, 2, "rc", "ud"))
	a.handle(Event{Kind: NeedLane, Role: wireup.RMA})
	settle(t, a, b)
	b.handle(Event{Kind: LaneFailed, Lane: 0})
	settle(t, a, b)
	assert.Equal(t, ucs.StatusIOError, a.err, "a failure is never OK; the side that needs the lane has no other")
	assert.Equal(t, ucs.StatusConnReset, b.err)
	assert.True(t, a.conn.Over() && b.conn.Over())
}

// TestConn_IgnoresInvalidMessages: random well-formed messages cause no panic and do not
// change active lanes.
func TestConn_IgnoresInvalidMessages(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := link(t, workeraddr.Make(t, 1, "rc", "sm@x", "ud"), workeraddr.Make(t, 2, "rc", "sm@y", "ud"))
		connected := rapid.Bool().Draw(rt, "connected")
		if connected {
			a.handle(Event{Kind: NeedLane, Role: wireup.RMA})
			settle(t, a, b)
		}
		for range rapid.IntRange(1, 10).Draw(rt, "messages") {
			a.receive(t, drawInvalidMsg(rt))
			assert.LessOrEqual(rt, len(a.conn.replies), MaxLanes)
		}
		if lanes := a.conn.Lanes(wireup.RMA); connected && assert.Len(rt, lanes, 1) {
			assert.Equal(rt, "b1", a.lanes[lanes[0].Lane].peer)
		}
	})
}

// drawInvalidMsg draws messages that claim to come from b, but not a DISCONNECT,
// which b could have sent.
func drawInvalidMsg(t *rapid.T) *Msg {
	m := &Msg{
		Type:    rapid.SampledFrom([]MsgType{Request, Reply, Ack}).Draw(t, "type"),
		SrcUUID: rapid.Uint64Range(1, 3).Draw(t, "src uuid"), DstUUID: rapid.Uint64Range(1, 2).Draw(t, "dst uuid"),
		SrcEP: rapid.Uint64Range(199, 201).Draw(t, "src ep"), DstEP: rapid.Uint64Range(99, 101).Draw(t, "dst ep"),
	}
	for range rapid.IntRange(1, MaxLanes).Draw(t, "lanes") {
		m.Lanes = append(m.Lanes, MsgLane{
			Src: rapid.Uint8Range(0, 4).Draw(t, "src"), Dst: rapid.Uint8Range(0, 4).Draw(t, "dst"),
			Roles:  Roles(rapid.IntRange(0, 15).Draw(t, "roles")),
			Status: rapid.SampledFrom([]ucs.Status{0, 0, ucs.StatusNoMemory}).Draw(t, "status"),
			EPAddr: []byte("garbage"),
		})
	}
	return m
}

func TestConn_TooManyLanes(t *testing.T) {
	names := make([]string, MaxLanes+1)
	for i := range names {
		names[i] = "rc"
	}
	a, b := link(t, workeraddr.Make(t, 1, names...), workeraddr.Make(t, 2, names...))
	for k := range 2 {
		m := b.conn.newMsg(Request)
		m.DstEP = 100
		for i := range MaxLanes / 2 {
			n := uint8(k*(MaxLanes/2) + i)
			m.Lanes = append(m.Lanes, MsgLane{Src: n, Dst: n, Roles: Set(wireup.RMA), EPAddr: []byte{n}})
		}
		a.receive(t, m)
	}
	m := b.conn.newMsg(Request)
	m.DstEP = 100
	m.Lanes = []MsgLane{{Src: MaxLanes, Dst: MaxLanes, Roles: Set(wireup.RMA), EPAddr: []byte("x")}}
	a.receive(t, m)
	last := b.inbox[len(b.inbox)-1]
	require.Equal(t, Reply, last.Type)
	assert.Equal(t, ucs.StatusNoResource, last.Lanes[0].Status)
}

func TestStrings(t *testing.T) {
	assert.Equal(t, "rma|am", Set(wireup.RMA, wireup.AM).String())
	assert.Equal(t, "DISCONNECT", Disconnect.String())
	assert.Equal(t, "unknown", MsgType(0).String())
}

// TestConn_Survives: the connection survives the failure of a lane if another pair can have its roles.
func TestConn_Survives(t *testing.T) {
	for _, tt := range []struct {
		resources []string
		survives  bool
	}{{[]string{"rc"}, false}, {[]string{"rc", "rc"}, true}} {
		a, b := link(t, workeraddr.Make(t, 1, tt.resources...), workeraddr.Make(t, 2, tt.resources...))
		a.handle(Event{Kind: NeedLane, Role: wireup.RMA})
		settle(t, a, b)
		lanes := a.conn.Lanes(wireup.RMA)
		require.Len(t, lanes, 1)
		assert.Equal(t, tt.survives, a.conn.Survives(lanes[0].Lane), "%v", tt.resources)
		assert.True(t, b.conn.Survives(0), "this side does not need the lane")
	}
}

// TestConn_FailsWithoutFreeSlot: a connection whose slots are all in use fails if a role needs one more.
func TestConn_FailsWithoutFreeSlot(t *testing.T) {
	a, _ := link(t, workeraddr.Make(t, 1, "rc"), workeraddr.Make(t, 2, "rc"))
	for i := range a.conn.lanes {
		a.conn.lanes[i] = lane{state: laneActive, local: 255, remote: 255}
	}
	acts := a.conn.Handle(Event{Kind: NeedLane, Role: wireup.RMA})
	last := acts[len(acts)-1]
	assert.Equal(t, FailEP, last.Kind)
	assert.Equal(t, ucs.StatusNoResource, last.Status)
}

// TestConn_SecondRoleWhileOpening: a lane to an iface is active for puts as soon as it is open, also if the lane
// must wait for the peer before it is active for messages.
func TestConn_SecondRoleWhileOpening(t *testing.T) {
	a, _ := link(t, workeraddr.Make(t, 1, "sm"), workeraddr.Make(t, 2, "sm"))
	c := a.conn
	acts := c.Handle(Event{Kind: NeedLane, Role: wireup.AM})
	require.Equal(t, OpenLane, acts[0].Kind)
	require.True(t, acts[0].ViaIface)
	i := acts[0].Lane
	c.Handle(Event{Kind: NeedLane, Role: wireup.RMA})
	assert.Empty(t, c.Lanes(wireup.RMA))
	acts = c.Handle(Event{Kind: LaneOpened, Lane: i})
	require.NotEmpty(t, acts)
	assert.Equal(t, Action{Kind: ActivateLane, Lane: i, Roles: Set(wireup.RMA)}, acts[0])
	assert.Len(t, c.Lanes(wireup.RMA), 1)
	assert.Empty(t, c.Lanes(wireup.AM))
}

// TestConn_IgnoresEventsOfUnknownLanes: an event about a lane that does not exist or does not wait for it is ignored.
func TestConn_IgnoresEventsOfUnknownLanes(t *testing.T) {
	for _, kind := range []EventKind{LaneOpened, LaneConnected, LaneFailed} {
		a, b := link(t, workeraddr.Make(t, 1, "rc"), workeraddr.Make(t, 2, "rc"))
		a.handle(Event{Kind: NeedLane, Role: wireup.RMA})
		settle(t, a, b)
		for i, lane := range []int{-1, MaxLanes, 1, MaxLanes - 1} {
			assert.Empty(t, a.conn.Handle(Event{Kind: kind, Lane: lane, Status: ucs.StatusIOError}), "lane %d", lane)
			assert.Equal(t, i+1, a.conn.Ignored())
		}
		if kind != LaneFailed { // the lane is active
			assert.Empty(t, a.conn.Handle(Event{Kind: kind}))
			assert.Equal(t, 5, a.conn.Ignored())
		}
		assert.Len(t, a.conn.Lanes(wireup.RMA), 1)
	}
}

// TestConn_RejectsProposals: a proposal that this side cannot accept is rejected with the reason, and the others in
// the message are accepted.
func TestConn_RejectsProposals(t *testing.T) {
	for name, tt := range map[string]struct {
		lane MsgLane
		want ucs.Status
	}{
		"local resource out of range":     {MsgLane{Src: 0, Dst: 3, Roles: Set(wireup.AM)}, ucs.StatusInvalidParam},
		"remote resource out of range":    {MsgLane{Src: 3, Dst: 0, Roles: Set(wireup.AM)}, ucs.StatusInvalidParam},
		"two transports":                  {MsgLane{Src: 0, Dst: 1, Roles: Set(wireup.AM)}, ucs.StatusInvalidParam},
		"no role":                         {MsgLane{Src: 0, Dst: 0}, ucs.StatusInvalidParam},
		"the auxiliary role":              {MsgLane{Src: 0, Dst: 0, Roles: Set(wireup.AM, wireup.Aux)}, ucs.StatusInvalidParam},
		"a role without its capabilities": {MsgLane{Src: 1, Dst: 1, Roles: Set(wireup.AM, wireup.RMA)}, ucs.StatusUnsupported},
		"another fabric":                  {MsgLane{Src: 2, Dst: 2, Roles: Set(wireup.AM)}, ucs.StatusUnreachable},
		"excluded":                        {MsgLane{Src: 2, Dst: 0, Roles: Set(wireup.AM)}, ucs.StatusRejected},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := link(t, workeraddr.Make(t, 1, "rc", "ud", "rc@x"), workeraddr.Make(t, 2, "rc", "ud", "rc@y"))
			a.conn.Handle(Event{Kind: PathFailed, Local: 0, Remote: 2, Status: ucs.StatusIOError})
			m := b.conn.newMsg(Request)
			m.DstEP = 100
			m.Lanes = []MsgLane{tt.lane, {Src: 0, Dst: 0, Roles: Set(wireup.AM), EPAddr: []byte("b1")}}
			a.handle(Event{Kind: MsgReceived, Msg: m})
			var replies []*Msg
			for _, m := range b.inbox {
				if m.Type == Reply {
					replies = append(replies, m)
				}
			}
			require.Len(t, replies, 1)
			require.Len(t, replies[0].Lanes, 2)
			rejected := MsgLane{Src: tt.lane.Dst, Dst: tt.lane.Src, Roles: tt.lane.Roles, Status: tt.want}
			assert.Equal(t, rejected, replies[0].Lanes[0])
			assert.Equal(t, ucs.StatusOK, replies[0].Lanes[1].Status)
		})
	}
}

// TestConn_IgnoresMessagesOfOthers: a message of another worker, or for another worker or connection, is ignored.
func TestConn_IgnoresMessagesOfOthers(t *testing.T) {
	for name, edit := range map[string]func(m *Msg){
		"source":      func(m *Msg) { m.SrcUUID++ },
		"destination": func(m *Msg) { m.DstUUID++ },
		"connection":  func(m *Msg) { m.DstEP++ },
		"peer's id":   func(m *Msg) { m.SrcEP++ },
	} {
		a, b := link(t, workeraddr.Make(t, 1, "rc", "ud"), workeraddr.Make(t, 2, "rc", "ud"))
		a.conn.p.PeerEP = b.conn.p.LocalEP
		m := b.conn.newMsg(Request)
		m.DstEP = 100
		m.Lanes = []MsgLane{{Roles: Set(wireup.AM), EPAddr: []byte("b1")}}
		edit(m)
		a.receive(t, m)
		assert.Equal(t, 1, a.conn.Ignored(), name)
		assert.Empty(t, b.inbox, name)
	}
}

// TestConn_IgnoresReplies: a reply about a lane that was not proposed, or a late rejection, is ignored. A repeated
// reply is acknowledged again.
func TestConn_IgnoresReplies(t *testing.T) {
	a, b := link(t, workeraddr.Make(t, 1, "rc", "ud"), workeraddr.Make(t, 2, "rc", "ud"))
	a.handle(Event{Kind: NeedLane, Role: wireup.RMA})
	settle(t, a, b)
	for i, e := range []MsgLane{
		{Src: 1, Dst: 1, Roles: Set(wireup.AM)},
		{Src: 0, Dst: 0, Roles: Set(wireup.RMA), Status: ucs.StatusIOError},
		{Src: 7, Dst: 7, Roles: Set(wireup.RMA)},
	} {
		m := b.conn.newMsg(Reply)
		m.Lanes = []MsgLane{e}
		a.receive(t, m)
		assert.Equal(t, i+1, a.conn.Ignored())
		assert.Empty(t, b.inbox)
	}
	m := b.conn.newMsg(Reply)
	m.Lanes = []MsgLane{{Src: 0, Dst: 0, Roles: Set(wireup.RMA), EPAddr: []byte("b1")}}
	a.receive(t, m)
	assert.Equal(t, 3, a.conn.Ignored())
	require.Len(t, b.inbox, 1)
	assert.Equal(t, Ack, b.inbox[0].Type)
	assert.Len(t, a.conn.Lanes(wireup.RMA), 1)
}

// TestConn_CrossingRequests: both sides have accepted the other's request for a lane to an iface. The reply to
// either request acknowledges the other.
func TestConn_CrossingRequests(t *testing.T) {
	a, b := link(t, workeraddr.Make(t, 1, "sm"), workeraddr.Make(t, 2, "sm"))
	a.handle(Event{Kind: NeedLane, Role: wireup.AM})
	settle(t, a, b)
	a.conn.lanes[0].state, a.conn.lanes[0].active = laneAccepted, 0 // as if its own reply was lost
	m := b.conn.newMsg(Reply)
	m.Lanes = []MsgLane{{Roles: Set(wireup.AM)}}
	a.receive(t, m)
	assert.Equal(t, laneActive, a.conn.lanes[0].state)
	assert.Len(t, a.conn.Lanes(wireup.AM), 1)
	require.Len(t, b.inbox, 1)
	assert.Equal(t, Ack, b.inbox[0].Type)
}

// TestConn_IgnoresDrops: a DROP of a pair that does not exist is ignored and not confirmed.
func TestConn_IgnoresDrops(t *testing.T) {
	a, b := link(t, workeraddr.Make(t, 1, "rc", "ud"), workeraddr.Make(t, 2, "rc", "ud"))
	m := b.conn.newMsg(Drop)
	m.DstEP = 100
	m.Lanes = []MsgLane{{Src: 2, Dst: 0, Status: ucs.StatusIOError}, {Src: 0, Dst: 2, Status: ucs.StatusIOError}}
	a.receive(t, m)
	assert.Equal(t, 2, a.conn.Ignored())
	assert.Empty(t, a.conn.excluded)
	assert.Empty(t, b.inbox)
}

// TestConn_Disconnect: the status in a DISCONNECT determines the error of the connection.
func TestConn_Disconnect(t *testing.T) {
	for st, want := range map[ucs.Status]ucs.Status{
		ucs.StatusOK:         ucs.StatusPeerClosed,
		ucs.StatusNoResource: ucs.StatusRejected,
		ucs.StatusIOError:    ucs.StatusConnReset,
	} {
		a, b := link(t, workeraddr.Make(t, 1, "rc"), workeraddr.Make(t, 2, "rc"))
		m := b.conn.newMsg(Disconnect)
		m.DstEP = 100
		m.Lanes = []MsgLane{{Status: ucs.StatusOK}, {Status: st}}
		a.receive(t, m)
		assert.Equal(t, want, a.err, "%v", st)
		assert.True(t, a.conn.Over())
	}
}
