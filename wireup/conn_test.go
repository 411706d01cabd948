package wireup

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucs"
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

// TestConn_BothSidesAdoptOneLaneMap: whatever is needed when, whichever order
// messages of the two directions take, and whatever cannot be opened, both sides
// end with the same lanes, each connected to the other's end of it, or both fail.
func TestConn_BothSidesAdoptOneLaneMap(t *testing.T) {
	kinds := []string{"rc", "rc", "ud", "sm", "rc@x"}
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfN(rapid.SampledFrom(kinds), 1, 5)
		uuidA, uuidB := uint64(1), uint64(2)
		if rapid.Bool().Draw(rt, "swap uuids") {
			uuidA, uuidB = 2, 1
		}
		a, b := link(t, address(t, uuidA, names.Draw(rt, "a")...), address(t, uuidB, names.Draw(rt, "b")...))
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			s := a
			if rapid.Bool().Draw(rt, "side b") {
				s = b
			}
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				s.handle(Event{Kind: NeedLane, Role: rapid.SampledFrom([]Role{RMA, AMO, AM}).Draw(rt, "role")})
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
		for p := range Aux {
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

// TestConn_FailureReachesBothSides: after a failure the peer is told.
func TestConn_FailureReachesBothSides(t *testing.T) {
	a, b := link(t, address(t, 1, "rc", "ud"), address(t, 2, "rc", "ud"))
	a.handle(Event{Kind: NeedLane, Role: RMA})
	settle(t, a, b)
	b.handle(Event{Kind: LaneFailed, Lane: 0})
	settle(t, a, b)
	assert.Equal(t, ucs.StatusIOError, a.err, "a failure is never OK; the side that needs the lane has no other")
	assert.Equal(t, ucs.StatusConnReset, b.err)
	assert.True(t, a.conn.Over() && b.conn.Over())
}

// TestConn_GarbageDoesNoHarm: random well-formed messages neither panic nor
// disturb lanes that are up.
func TestConn_GarbageDoesNoHarm(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := link(t, address(t, 1, "rc", "sm@x", "ud"), address(t, 2, "rc", "sm@y", "ud"))
		connected := rapid.Bool().Draw(rt, "connected")
		if connected {
			a.handle(Event{Kind: NeedLane, Role: RMA})
			settle(t, a, b)
		}
		for range rapid.IntRange(1, 10).Draw(rt, "messages") {
			a.receive(t, drawGarbage(rt))
			assert.LessOrEqual(rt, len(a.conn.answers), MaxLanes)
		}
		if lanes := a.conn.Lanes(RMA); connected && assert.Len(rt, lanes, 1) {
			assert.Equal(rt, "b1", a.lanes[lanes[0].Lane].peer)
		}
	})
}

// drawGarbage draws messages that claim to come from b, but not a DISCONNECT,
// which b could have sent.
func drawGarbage(t *rapid.T) *Msg {
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
	a, b := link(t, address(t, 1, names...), address(t, 2, names...))
	for k := range 2 {
		m := b.conn.newMsg(Request)
		m.DstEP = 100
		for i := range MaxLanes / 2 {
			n := uint8(k*(MaxLanes/2) + i)
			m.Lanes = append(m.Lanes, MsgLane{Src: n, Dst: n, Roles: Set(RMA), EPAddr: []byte{n}})
		}
		a.receive(t, m)
	}
	m := b.conn.newMsg(Request)
	m.DstEP = 100
	m.Lanes = []MsgLane{{Src: MaxLanes, Dst: MaxLanes, Roles: Set(RMA), EPAddr: []byte("x")}}
	a.receive(t, m)
	last := b.inbox[len(b.inbox)-1]
	require.Equal(t, Reply, last.Type)
	assert.Equal(t, ucs.StatusNoResource, last.Lanes[0].Status)
}

func TestStrings(t *testing.T) {
	assert.Equal(t, "rma|am", Set(RMA, AM).String())
	assert.Equal(t, "unknown", Role(9).String())
	assert.Equal(t, "DISCONNECT", Disconnect.String())
	assert.Equal(t, "unknown", MsgType(0).String())
}
