package handshake

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// failedOver returns two sides whose best lane has failed and that retry its pair.
func failedOver(t *testing.T, a, b []string) *world {
	w := connected(t, a, b, func(p *ConnParams) { p.Retry = 10 * time.Second })
	w.a.handle(Event{Kind: LaneFailed, Lane: 0, Status: ucs.StatusTimedOut})
	settle(t, w.a, w.b)
	return w
}

// TestExplore_Retry: as TestExplore, from a state in which the best lane has failed and its pair is tried again.
func TestExplore_Retry(t *testing.T) {
	testenv.SkipRace(t, "one goroutine has both sides")
	for _, tc := range []struct {
		name string
		res  []string
	}{
		{"pairs", []string{"rc", "rc@x", "ud"}},
		{"iface", []string{"sm", "rc", "ud"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			depth := 6
			if !testenv.Sweep() { // one event more gives three times as many states
				depth -= 2
			}
			x := explorer{t: t, roles: []wireup.Role{wireup.RMA, wireup.AM}, seen: map[string]int{}}
			w := failedOver(t, tc.res, tc.res)
			pass(w.a, w.b, 10*time.Second) // the first retry begins
			x.walk(w, depth)
			t.Logf("%d states", len(x.seen))
			require.Greater(t, len(x.seen), 100)
		})
	}
}

// TestRetry_OldPeer: a pair that the peer always rejects is retried once.
func TestRetry_OldPeer(t *testing.T) {
	w := failedOver(t, []string{"rc", "rc@x", "ud"}, []string{"rc", "rc@x", "ud"})
	w.b.conn.p.Retry = 0 // as in versions without retries
	require.Len(t, w.a.conn.Retries(), 1)
	pass(w.a, w.b, 10*time.Second)
	settle(t, w.a, w.b)
	assert.Empty(t, w.a.conn.Retries())
	assert.True(t, w.a.conn.Quiet() && w.b.conn.Quiet())
	_, waits := w.a.conn.Deadline()
	assert.False(t, waits)
	assert.Len(t, w.a.conn.Lanes(wireup.RMA), 1)
}

// TestRetry_LostRole: a role without a pair gets one when a retry succeeds.
func TestRetry_LostRole(t *testing.T) {
	w := failedOver(t, []string{"rc", "ud"}, []string{"rc", "ud"})
	require.Empty(t, w.a.conn.Lanes(wireup.RMA))
	require.NotEmpty(t, w.a.conn.Lanes(wireup.AM))
	pass(w.a, w.b, 10*time.Second)
	settle(t, w.a, w.b)
	w.a.handle(Event{Kind: NeedLane, Role: wireup.RMA})
	settle(t, w.a, w.b)
	assert.Len(t, w.a.conn.Lanes(wireup.RMA), 1)
	assert.True(t, w.a.conn.Quiet() && w.b.conn.Quiet())
}

// TestRetry_Backoff: pauses grow to a limit, and the pair stays excluded meanwhile.
func TestRetry_Backoff(t *testing.T) {
	w := failedOver(t, []string{"rc", "rc@x", "ud"}, []string{"rc", "rc@x", "ud"})
	var pauses []time.Duration
	for range 8 {
		before := w.a.now
		at, ok := w.a.conn.Deadline()
		require.True(t, ok)
		w.a.fails["open rc"] = true
		pass(w.a, w.b, at-before)
		pauses = append(pauses, at-before)
	}
	const s = time.Second
	assert.Equal(t, []time.Duration{10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 320 * s, 320 * s, 320 * s}, pauses)
	assert.True(t, w.a.conn.Excluded(0, 0))
	assert.Empty(t, w.b.inbox)
}

// TestRetry_NoCarrier: a trial ends if its messages cannot be sent. Nothing else is affected, and the next trial works.
func TestRetry_NoCarrier(t *testing.T) {
	w := failedOver(t, []string{"rc", "rc@x", "ud"}, []string{"rc", "rc@x", "ud"})
	pass(w.a, w.b, 10*time.Second)
	require.NotEmpty(t, w.b.inbox)
	w.b.inbox = nil
	require.False(t, w.a.conn.Quiet())
	require.True(t, w.a.conn.Dispensable())
	w.a.handle(Event{Kind: NoCarrier, Status: ucs.StatusUnreachable})
	assert.True(t, w.a.conn.Quiet())
	assert.Empty(t, w.b.inbox)
	pass(w.a, w.b, 20*time.Second)
	settle(t, w.a, w.b)
	assert.Empty(t, w.a.conn.Retries())
	assert.Len(t, w.a.conn.Lanes(wireup.RMA), 1)
}

// TestRetry_Off: a side without retries ignores the messages of trials and moves, and rejects trials.
func TestRetry_Off(t *testing.T) {
	w := failedOver(t, []string{"rc", "rc@x", "ud"}, []string{"rc", "rc@x", "ud"})
	w.a.conn.p.Retry, w.b.conn.p.Retry = 0, 0
	before := w.b.conn.states()
	roles := Set(wireup.RMA, wireup.AM)
	for _, m := range []*Msg{
		{Type: Probe, Lanes: []MsgLane{{Src: 1, Dst: 1}}},
		{Type: Probed, Lanes: []MsgLane{{Src: 1, Dst: 1}}},
		{Type: Move, Lanes: []MsgLane{{Src: 1, Dst: 1, Status: 1}}},
		{Type: Moved, Lanes: []MsgLane{{Src: 1, Dst: 1, Status: 1}}},
		{Type: Request, Lanes: []MsgLane{{Src: 0, Dst: 0, Roles: roles, Status: 1, EPAddr: []byte("x")}}},
	} {
		sent := w.a.conn.newMsg(m.Type)
		sent.Lanes = m.Lanes
		var acts []ActionKind
		w.b.check = func(act *Action) { acts = append(acts, act.Kind) }
		w.b.receive(t, sent)
		if m.Type != Request {
			assert.Empty(t, acts, m.Type)
			continue
		}
		assert.Equal(t, []ActionKind{SendMsg}, acts)
		reply := w.a.inbox[len(w.a.inbox)-1]
		assert.Equal(t, []MsgLane{{Roles: roles, Status: ucs.StatusRejected}}, reply.Lanes)
	}
	assert.Equal(t, before, w.b.conn.states())

	sent := w.a.conn.newMsg(Drop) // StatusOK: of an abandoned lane, which this side cannot have
	sent.Lanes = []MsgLane{{Src: 1, Dst: 1}}
	w.b.receive(t, sent)
	assert.True(t, w.b.conn.Excluded(1, 1), "the lane broke")
}

// TestRetry_BreaksAgain: the best lane breaks at any moment of a trial or a move, several times. The sides use it in the end. The
// two faults that it has found show in one of some thousand histories, and in one of some ten thousand (-rapid.checks=60000).
func TestRetry_BreaksAgain(t *testing.T) {
	testenv.SkipRace(t, "one goroutine has both sides")
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue && !testing.Short() {
		require.NoError(t, flag.Set(f.Name, "8000"))
		defer func() { assert.NoError(t, flag.Set(f.Name, f.DefValue)) }()
	}
	res := []string{"rc", "rc@x", "ud"}
	rapid.Check(t, func(rt *rapid.T) {
		w := failedOver(t, res, res)
		for _, s := range []*side{w.a, w.b} {
			s.slow, s.silent, s.conn.p.Timeout = true, false, 0
		}
		for range rapid.IntRange(1, 80).Draw(rt, "events") {
			s := w.side(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "side"))
			switch rapid.IntRange(0, 8).Draw(rt, "what") {
			case 0, 1, 2, 3:
				if len(s.inbox) > 0 {
					s.deliver(t)
				}
			case 4, 5:
				s.runLater()
			case 6: // over the lane, and not over the carrier
				if i := slices.IndexFunc(s.inbox, func(m *Msg) bool { return m.Type == Probe }); i >= 0 {
					m := s.inbox[i]
					s.inbox = slices.Insert(slices.Delete(s.inbox, i, i+1), 0, m)
				}
			case 7:
				if i := s.conn.find(0, 0); i >= 0 && !s.lanes[i].retired {
					s.logf("lane %d breaks", i)
					s.handle(Event{Kind: LaneFailed, Lane: i, Status: ucs.StatusIOError})
				}
			default:
				pass(w.a, w.b, s.untilDeadline())
			}
		}
		for n := 0; !w.restored(); n++ {
			if n == 1000 {
				rt.Fatalf("a: %s\nb: %s\n%s\n%s", w.a.state(), w.b.state(), strings.Join(w.a.log, "\n"), strings.Join(w.b.log, "\n"))
			}
			for _, s := range []*side{w.a, w.b} {
				for len(s.inbox)+len(s.later) > 0 {
					if s.runLater(); len(s.inbox) > 0 {
						s.deliver(t)
					}
				}
			}
			if len(w.a.inbox)+len(w.b.inbox)+len(w.a.later)+len(w.b.later) == 0 {
				pass(w.a, w.b, time.Second)
			}
		}
	})
}

// runLater handles the oldest event in later.
func (s *side) runLater() {
	if len(s.later) > 0 {
		ev := s.later[0]
		s.later = s.later[1:]
		s.handle(ev)
	}
}

// untilDeadline is the time until the next TimePassed; 0 if there is none.
func (s *side) untilDeadline() time.Duration {
	at, ok := s.conn.Deadline()
	if !ok {
		return 0
	}
	return max(at-s.now, 0)
}

// restored reports whether both sides have the best lane, and no other.
func (w *world) restored() bool {
	for _, s := range []*side{w.a, w.b} {
		n := 0
		for i := range s.conn.lanes {
			if s.conn.lanes[i].state != laneFree {
				n++
			}
		}
		if i := s.conn.find(0, 0); n != 1 || i < 0 || !s.conn.Quiet() {
			return false
		}
	}
	return !w.a.conn.over && !w.b.conn.over
}
