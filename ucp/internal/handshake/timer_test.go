package handshake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv/workeraddr"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// lossyPair returns two sides in a handshake with lost and repeated messages, after less time
// than the timeout.
func lossyPair(t *testing.T, rt *rapid.T) (a, b *side) {
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"rc", "rc", "ud", "sm"}), 1, 4)
	a, b = link(t, workeraddr.Make(t, 1, names.Draw(rt, "a")...), workeraddr.Make(t, 2, names.Draw(rt, "b")...))
	for range rapid.IntRange(1, 30).Draw(rt, "steps") {
		s := a
		if rapid.Bool().Draw(rt, "side b") {
			s = b
		}
		switch what := rapid.IntRange(0, 5).Draw(rt, "what"); {
		case what == 0:
			s.handle(Event{Kind: NeedLane, Role: rapid.SampledFrom([]wireup.Role{wireup.RMA, wireup.AMO, wireup.AM}).Draw(rt, "role")})
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

// TestConn_SurvivesLoss: if messages arrive again before the timeout, both sides
// end with the same lanes, whichever messages were lost or repeated before.
func TestConn_SurvivesLoss(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := lossyPair(t, rt)
		for range 2 * simTimeout / time.Second {
			settle(t, a, b)
			pass(a, b, time.Second)
		}
		for _, s := range []*side{a, b} { // the DISCONNECT for another failure may be lost
			assert.False(rt, s.err == ucs.StatusTimedOut && (s.peer.err == s.err || s.peer.err == ucs.StatusOK), "%s", s.state())
		}
		checkAgreement(rt, a, b)
	})
}

// TestConn_FailsIfPeerIsSilent: if the peer becomes silent at any time, a side has the lanes
// that it needs, or fails within the timeout.
func TestConn_FailsIfPeerIsSilent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := lossyPair(t, rt)
		pass(a, b, simTimeout)
		for _, s := range []*side{a, b} {
			_, due := s.conn.Deadline()
			assert.False(rt, s.conn.timeoutApplies() && !s.conn.Over(), "%s", s.state())
			assert.False(rt, due && s.conn.Over(), "%s", s.state())
		}
		pass(a, b, time.Hour)
		for _, s := range []*side{a, b} {
			_, due := s.conn.Deadline()
			assert.False(rt, due, "%s", s.state())
		}
	})
}

// TestConn_WithoutTimeout: a side without a timeout never fails.
func TestConn_WithoutTimeout(t *testing.T) {
	a, b := link(t, workeraddr.Make(t, 1, "rc", "ud"), workeraddr.Make(t, 2, "rc", "ud"))
	a.conn.p.Timeout = 0
	a.handle(Event{Kind: NeedLane, Role: wireup.RMA})
	pass(a, b, 24*time.Hour)
	assert.Len(t, b.inbox, 8, "one REQUEST and seven retransmissions")
	settle(t, a, b)
	require.Equal(t, ucs.StatusOK, a.err)
	assert.Len(t, a.conn.Lanes(wireup.RMA), 1)
}

// TestConn_ReplyRestartsTimeout: a reply that changes the handshake restarts the timeout; a repeated one
// does not.
func TestConn_ReplyRestartsTimeout(t *testing.T) {
	a, b := link(t, workeraddr.Make(t, 1, "rc", "rc", "ud"), workeraddr.Make(t, 2, "rc", "ud"))
	a.handle(Event{Kind: NeedLane, Role: wireup.RMA})
	pass(a, b, simTimeout-time.Second)
	b.fails["open rc"] = true // after the rejection, a proposes another lane
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

// TestConn_RetransmitsOverAnotherPath: after SendingFailed, the pauses restart with firstPause, but not for ever.
func TestConn_RetransmitsOverAnotherPath(t *testing.T) {
	a, b := link(t, workeraddr.Make(t, 1, "rc", "ud"), workeraddr.Make(t, 2, "rc", "ud"))
	a.conn.p.Timeout = 0
	a.handle(Event{Kind: NeedLane, Role: wireup.RMA})
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
