package handshake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// connectedIdle returns two sides with lanes for puts and messages, which close the lanes when they are idle.
func connectedIdle(t *testing.T, res ...string) *world {
	return connected(t, res, res, func(p *ConnParams) { p.Idle = true })
}

func (s *side) rest() { s.handle(Event{Kind: NoOperations}) }

// openLanes is the number of transport endpoints of a side.
func (s *side) openLanes() (n int) {
	for i := range s.lanes {
		if s.lanes[i].open {
			n++
		}
	}
	return n
}

// TestExplore_Idle explores all orders in which sides become idle, need lanes again, lose messages and lanes. No side
// closes a lane that the other one uses.
func TestExplore_Idle(t *testing.T) {
	testenv.SkipRace(t, "one goroutine has both sides")
	for _, tc := range []struct {
		name string
		res  []string
	}{
		{"pairs", []string{"rc", "rc@x", "ud"}},
		{"iface", []string{"sm", "rc", "ud"}},
	} {
		for _, both := range []bool{false, true} {
			name := tc.name + ", lanes of one side are quiesced"
			if both {
				name = tc.name + ", lanes of both sides are quiesced"
			}
			t.Run(name, func(t *testing.T) {
				depth := 7
				switch {
				case testing.Short():
					depth -= 3
				case !testenv.Sweep(): // a step more is five times as many states
					depth -= 2
				}
				x := explorer{t: t, roles: []wireup.Role{wireup.RMA, wireup.AM}, seen: map[string]int{}}
				w := connectedIdle(t, tc.res...)
				w.a.rest()
				if both {
					w.b.rest()
					w.a.rest()
				}
				x.walk(w, depth)
				t.Logf("%d states", len(x.seen))
				require.Greater(t, len(x.seen), 100)
			})
		}
	}
}

// TestIdle_Reopens: lanes close and open again, in any number of rounds; either side may need one first.
func TestIdle_Reopens(t *testing.T) {
	w := connectedIdle(t, "rc", "rc@x", "ud")
	for n := range 100 {
		for range 2 {
			w.a.rest()
			w.b.rest()
		}
		settle(t, w.a, w.b)
		require.Zero(t, w.a.openLanes()+w.b.openLanes(), "round %d", n)
		require.True(t, w.a.conn.Quiet() && w.b.conn.Quiet())
		_, waits := w.a.conn.Deadline()
		require.False(t, waits)
		s := []*side{w.a, w.b}[n%2]
		s.handle(Event{Kind: NeedLane, Role: wireup.AM})
		settle(t, w.a, w.b)
		require.Len(t, s.conn.Lanes(wireup.AM), 1)
	}
}

// TestIdle_NoReply: a peer that does not reply has no effect on operations, and the lanes stay open.
func TestIdle_NoReply(t *testing.T) {
	w := connectedIdle(t, "rc", "ud")
	w.a.rest()
	w.a.rest()
	require.False(t, w.a.conn.Quiet())
	require.True(t, w.a.conn.Dispensable())
	var ends []ucs.Status
	w.a.check = func(act *Action) {
		if act.Kind == KeepLanes {
			ends = append(ends, act.Status)
		}
	}
	for range 20 {
		w.b.inbox = nil
		pass(w.a, w.b, 10*time.Second)
	}
	assert.Equal(t, []ucs.Status{ucs.StatusTimedOut}, ends)
	assert.True(t, w.a.conn.Quiet())
	w.a.handle(Event{Kind: NeedLane, Role: wireup.RMA})
	assert.Len(t, w.a.conn.Lanes(wireup.RMA), 1)
	assert.Empty(t, w.b.inbox, "nothing was needed for that")
}

// TestIdle_Off: a side without the setting refuses, and keeps its lanes.
func TestIdle_Off(t *testing.T) {
	w := connectedIdle(t, "rc", "ud")
	w.b.conn.p.Idle = false
	w.b.rest()
	w.a.rest()
	w.a.rest()
	settle(t, w.a, w.b)
	assert.True(t, w.a.conn.Quiet() && w.b.conn.Quiet())
	assert.Equal(t, w.a.openLanes(), w.b.openLanes())
	assert.NotZero(t, w.b.conn.Lanes(wireup.RMA))
	for _, typ := range []MsgType{Agreed, Refused, Resume, Drop} { // of no IDLE
		m := w.a.conn.newMsg(typ)
		m.Lanes = []MsgLane{{Roles: 3, Status: 3}}
		if typ == Drop {
			m.Lanes[0].Status = ucs.StatusOK
			w.b.conn.p.Idle = true
		}
		w.b.receive(t, m)
		assert.NotZero(t, w.b.conn.Lanes(wireup.RMA), typ)
	}
}

// TestIdle_WaitsForDecision: after AGREED the lanes may close at any time, so an operation waits, for the lanes or for
// new ones.
func TestIdle_WaitsForDecision(t *testing.T) {
	for _, resumes := range []bool{false, true} {
		w := connectedIdle(t, "rc", "ud")
		w.b.rest()
		w.a.rest()
		w.a.rest()
		w.b.deliver(t) // IDLE
		require.Equal(t, idleAgreed, w.b.conn.idle.state)
		w.b.handle(Event{Kind: NeedLane, Role: wireup.RMA})
		require.Empty(t, w.b.conn.Lanes(wireup.RMA))
		require.Zero(t, w.b.lanes[0].uses)
		if resumes {
			w.a.handle(Event{Kind: NeedLane, Role: wireup.RMA})
		}
		settle(t, w.a, w.b)
		assert.Len(t, w.b.conn.Lanes(wireup.RMA), 1)
		assert.True(t, w.a.conn.Quiet() && w.b.conn.Quiet())
		same := w.b.lanes[0].addr == "b1"
		assert.Equal(t, resumes, same, "the lane closes only if no operation needs it in time")
	}
}

// TestIdle_LostDrops: while the peer waits for the decision, a side that has closed its lanes neither frees them nor
// changes its decision, however long its messages are lost.
func TestIdle_LostDrops(t *testing.T) {
	for _, res := range [][]string{{"rc", "ud"}, {"sm", "rc"}} {
		w := connectedIdle(t, res...)
		w.b.rest()
		w.a.rest()
		w.a.rest()
		w.b.deliver(t) // IDLE
		w.a.deliver(t) // AGREED
		w.a.check = func(act *Action) {
			assert.NotEqual(t, CloseLane, act.Kind, "b may notice, and then fails")
			assert.False(t, act.Kind == SendMsg && act.Msg.Type == Resume, "the lanes are closed")
		}
		for range 60 {
			for len(w.a.inbox) > 0 { // AGREED
				w.a.deliver(t)
			}
			w.b.inbox = nil
			pass(w.a, w.b, 10*time.Second)
		}
		require.Equal(t, idleAgreed, w.b.conn.idle.state)
		w.a.check = nil
		w.b.inbox = nil
		w.b.handle(Event{Kind: NeedLane, Role: wireup.RMA})
		pass(w.a, w.b, firstPause)
		require.Equal(t, Agreed, w.a.inbox[len(w.a.inbox)-1].Type)
		settle(t, w.a, w.b)
		pass(w.a, w.b, firstPause)
		settle(t, w.a, w.b)
		assert.True(t, w.a.conn.Quiet() && w.b.conn.Quiet(), "after AGREED the DROP is sent again")
		assert.Len(t, w.b.conn.Lanes(wireup.RMA), 1)
		x := explorer{t: t}
		x.agree(w)
	}
}
