package udcore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// startCheck starts a Check and returns its completion.
func (e *EP) startCheck(t testing.TB) *uct.Completion {
	t.Helper()
	c := &uct.Completion{Count: 1, Func: func(c *uct.Completion) { c.Count = -1 }}
	pending, err := e.Check(c)
	require.NoError(t, err)
	require.True(t, pending)
	return c
}

func TestCheck_OneDatagramEachWay(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab := a.epTo(b)
		first := ab.startCheck(t)
		arrive(t, func() bool { return first.Count < 0 }, a, b) // no time passes, so nothing is retransmitted
		assert.Equal(t, ucs.StatusOK, first.Status, "an EP that has sent nothing")
		fromA, fromB := a.it.core.pi, b.it.core.pi
		again := ab.startCheck(t)
		arrive(t, func() bool { return again.Count < 0 }, a, b)
		progressUntilIdle(a, b)
		assert.Equal(t, ucs.StatusOK, again.Status)
		assert.EqualValues(t, 1, a.it.core.pi-fromA, "the probe")
		assert.EqualValues(t, 1, b.it.core.pi-fromB, "its acknowledgement")
		assert.Empty(t, b.got, "no message is delivered")
		assert.Equal(t, a.it.core.cfg.TxBuffers, a.it.core.pool.Free())
	})
}

// TestCheck_BetweenMessages: a probe is ordered with messages. A Check after unacknowledged
// messages sends no probe.
func TestCheck_BetweenMessages(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{}, Config{})
		ab := a.epTo(b)
		var last *uct.Completion
		for i := range uint64(20) {
			last = ab.startCheck(t)
			ab.send(t, i)
			if i%3 == 0 {
				until(t, func() bool { return ab.c.proto.Unacked() == 0 }, a, b)
			}
		}
		until(t, func() bool { return last.Count < 0 }, a, b)
		until(t, func() bool { return len(b.got) == 20 }, a, b)
		assert.Equal(t, upTo(20), b.got)
	})
}

func TestCheck_FailsWithoutReply(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b := over.pair(t, Config{Timeout: 100 * time.Millisecond}, Config{})
		ab := a.epTo(b)
		c := ab.startCheck(t)
		until(t, func() bool { return c.Count < 0 }, a, b)
		c = ab.startCheck(t)
		until(t, func() bool { return c.Count < 0 }, a) // time passes without Progress of b
		assert.Equal(t, ucs.StatusTimedOut, c.Status)
		require.Len(t, a.errs, 1)
		_, err := ab.Check(c)
		assert.ErrorIs(t, err, uct.ErrEPFailed)
	})
}
