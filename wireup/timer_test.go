package wireup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucs"
)

// lossyPair makes two sides that handshake while messages get lost, arrive twice
// and time goes by, but less than what they wait for each other.
func lossyPair(t *testing.T, rt *rapid.T) (a, b *side) {
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"rc", "rc", "ud", "sm"}), 1, 4)
	a, b = link(t, address(t, 1, names.Draw(rt, "a")...), address(t, 2, names.Draw(rt, "b")...))
	for range rapid.IntRange(1, 30).Draw(rt, "steps") {
		s := a
		if rapid.Bool().Draw(rt, "side b") {
			s = b
		}
		switch what := rapid.IntRange(0, 5).Draw(rt, "what"); {
		case what == 0:
			s.handle(Event{Kind: NeedLane, Role: rapid.SampledFrom([]Role{RMA, AMO, AM}).Draw(rt, "role")})
		case what == 1:
			pass(a, b, simTimeout/60)
		case what == 2:
			s.fails[rapid.SampledFrom([]string{"open rc", "connect rc"}).Draw(rt, "failure")] = true
		case len(s.inbox) == 0:
		case what == 3:
			s.inbox = s.inbox[1:]
		case what == 4:
			s.receive(t, s.inbox[0])
		default:
			s.deliver(t)
		}
	}
	return a, b
}

// TestConn_SurvivesLoss: whatever is lost or doubled, sides that hear each other
// again in time end with the same lanes.
func TestConn_SurvivesLoss(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := lossyPair(t, rt)
		for range 2 * simTimeout / time.Second {
			settle(t, a, b)
			pass(a, b, time.Second)
		}
		for _, s := range []*side{a, b} { // the notice of another failure may be lost
			assert.False(rt, s.err == ucs.StatusTimedOut && (s.peer.err == s.err || s.peer.err == ucs.StatusOK), "%s", s.state())
		}
		checkAgreement(rt, a, b)
	})
}

// TestConn_NothingWaitsForEver: a side whose peer falls silent at any time has what
// it needs, or fails in time.
func TestConn_NothingWaitsForEver(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := lossyPair(t, rt)
		pass(a, b, simTimeout)
		for _, s := range []*side{a, b} {
			_, due := s.conn.Deadline()
			assert.False(rt, s.conn.givesUp() && !s.conn.Over(), "%s", s.state())
			assert.False(rt, due && s.conn.Over(), "%s", s.state())
		}
		pass(a, b, time.Hour)
		for _, s := range []*side{a, b} {
			_, due := s.conn.Deadline()
			assert.False(rt, due, "%s", s.state())
		}
	})
}

// TestConn_WithoutTimeout: a side with no limit waits for ever.
func TestConn_WithoutTimeout(t *testing.T) {
	a, b := link(t, address(t, 1, "rc", "ud"), address(t, 2, "rc", "ud"))
	a.conn.p.Timeout = 0
	a.handle(Event{Kind: NeedLane, Role: RMA})
	pass(a, b, 24*time.Hour)
	assert.Len(t, b.inbox, 8, "one REQUEST and seven repetitions")
	settle(t, a, b)
	require.Equal(t, ucs.StatusOK, a.err)
	assert.Len(t, a.conn.Lanes(RMA), 1)
}

// TestConn_AnswersStartTheWaitAnew: the limit is on the peer's silence, not on the
// handshake, and what does not move it on is silence.
func TestConn_AnswersStartTheWaitAnew(t *testing.T) {
	a, b := link(t, address(t, 1, "rc", "rc", "ud"), address(t, 2, "rc", "ud"))
	a.handle(Event{Kind: NeedLane, Role: RMA})
	pass(a, b, simTimeout-time.Second)
	b.fails["open rc"] = true // a refusal moves it on: a proposes another lane
	b.deliver(t)
	a.deliver(t)
	again := a.inbox
	pass(a, b, simTimeout-time.Second)
	assert.Equal(t, ucs.StatusOK, a.err)
	for _, m := range again {
		a.receive(t, m)
	}
	pass(a, b, time.Second)
	assert.Equal(t, ucs.StatusTimedOut, a.err)
}

// Another path gets repetitions after short pauses, too, but no number of paths makes them go on for ever.
func TestConn_AnotherPath(t *testing.T) {
	a, b := link(t, address(t, 1, "rc", "ud"), address(t, 2, "rc", "ud"))
	a.conn.p.Timeout = 0
	a.handle(Event{Kind: NeedLane, Role: RMA})
	pass(a, b, 3*firstPause)
	require.Len(t, b.inbox, 3, "the REQUEST, after 1 and after 3 s")
	a.handle(Event{Kind: SendingFailed})
	require.Len(t, b.inbox, 4)
	at, due := a.conn.Deadline()
	assert.True(t, due)
	assert.Equal(t, a.now+firstPause, at)
	for due {
		require.Less(t, len(b.inbox), 100)
		pass(a, b, at-a.now)
		a.handle(Event{Kind: SendingFailed})
		at, due = a.conn.Deadline()
	}
}
