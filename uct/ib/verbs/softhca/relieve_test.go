package softhca

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// TestEngine_TakesOverFromASleeper: once a poller has armed a CQ, the engine does not
// stay away for a tick, though it finds that somebody has polled.
func TestEngine_TakesOverFromASleeper(t *testing.T) {
	h := openTest(t)
	qp := newTestQP(t, h)
	testenv.ProgressWithin(t, testPatience, func() bool { return h.ctl.sleeping.Load() == 1 })
	h.armCQ(uint64(qp.sendCQ.cqn))
	assert.True(t, h.farewell.Load(), "for when it is woken")

	idle := &hca{ctl: new(control)} // its engine is this test
	idle.farewell.Store(true)
	idle.watch()
	assert.Zero(t, idle.ctl.attention.Load()&attnProbe, "it has not waited for a poller")
	assert.False(t, idle.farewell.Load())
	idle.watch()
	assert.NotZero(t, idle.ctl.attention.Load()&attnProbe, "now it has")
}

// TestUDLink_DialsAgainWhatWasLate: a port that did not answer in time may live; one
// that hung up does not.
func TestUDLink_DialsAgainWhatWasLate(t *testing.T) {
	h := openTest(t)
	for _, late := range []bool{false, true} {
		qp := newTestQP(t, h)
		first := linked(t, h, h)
		first.late = late
		h.dropLink(first)
		qp.req.udLinks = []*outLink{first}
		l, err := qp.udLink(h.gid)
		require.NoError(t, err)
		assert.Equal(t, late, l != first)
		assert.Len(t, qp.req.udLinks, 1)
		qp.detach()
	}
}
