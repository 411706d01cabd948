package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

// canceled ends a message of which nothing was posted.
func canceled(t *testing.T, r *Request) {
	t.Helper()
	require.True(t, r.Cancel())
	require.ErrorIs(t, r.take(), ucs.ErrCanceled)
}

// TestMessages_CancelRefunds: a message that is canceled uses up no credit.
func TestMessages_CancelRefunds(t *testing.T) {
	p, f := fakePair(t, Config{}, likeTCP())
	p.grown()
	credit := p.a.ep.msgs.credit
	f.ifaces[0].stuck = true
	for _, n := range []int{1, 1000, 5000, 20000} {
		r, err := p.a.ep.SendActive(1, nil, make([]byte, n), nil)
		require.NoError(t, err)
		require.Less(t, p.a.ep.msgs.credit, credit)
		canceled(t, r)
		require.Equal(t, credit, p.a.ep.msgs.credit, "after %d bytes", n)
	}
	f.ifaces[0].stuck = false
	p.idle()
}

// TestMessages_CancelLetsOthersGo: what waits behind a message that had no credit, and can
// afford to go, goes when that is canceled.
func TestMessages_CancelLetsOthersGo(t *testing.T) {
	p, _ := fakePair(t, Config{}, likeTCP())
	p.grown()
	p.a.ep.msgs.credit = charge(100) - reserve
	long, err := p.a.ep.SendActive(1, make([]byte, 1000), nil, nil)
	require.NoError(t, err)
	require.NotNil(t, long, "an announcement with its header costs too much")
	short, err := p.a.ep.TagSend(1, pattern(100, 1), nil)
	require.NoError(t, err)
	require.NotNil(t, short)
	canceled(t, long)
	buf := make([]byte, 100)
	require.NoError(t, p.finish(p.b.w.TagRecv(buf, 1, exact, nil, nil)))
	require.NoError(t, p.finish(short, nil))
	requireBytes(t, pattern(100, 1), buf)
}
