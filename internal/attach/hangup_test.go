package attach

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hungUpOn returns both ends of a link of which the acceptor has hung up.
func hungUpOn(t testing.TB, a, b *station) (*Outbound, *Inbound) {
	t.Helper()
	out := a.dial(t, b.gid)
	in := within(t, b.in, "inbound link")
	in.HangUp()
	within(t, out.Done(), "hang-up at the dialer")
	return out, in
}

// TestHangUp_PeerStaysInside: the port that hung up closes, and still has the guard of
// a peer until that has left too.
func TestHangUp_PeerStaysInside(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, nil)
	out, in := hungUpOn(t, a, b)
	require.NoError(t, b.Port.Close())
	out.Seg.Bytes()[0] = 7
	assert.EqualValues(t, 7, in.Seg.Bytes()[0])
	assert.True(t, in.Up())
	left := make(chan struct{})
	in.AfterDown(func() { close(left) })
	require.NoError(t, out.Close())
	within(t, left, "hang-up at the acceptor")
	require.NoError(t, in.Close())
}

func TestHangUp_PeerIsKilled(t *testing.T) {
	a, c := newStation(t, nil), startStation(t)
	c.tell(t, "dial %x", a.gid)
	require.Equal(t, "up", c.line(t))
	in := within(t, a.in, "inbound link")
	in.HangUp()
	require.NoError(t, a.Port.Close())
	require.True(t, in.Up(), "the peer has not closed its end")
	require.NoError(t, c.cmd.Process.Kill())
	within(t, in.Done(), "death of the peer")
	require.NoError(t, in.Close())
}

// TestHangUp_BeforeWelcome: an owner may hang up as soon as it has the link.
func TestHangUp_BeforeWelcome(t *testing.T) {
	links := make(chan *Inbound, 1)
	b := newStation(t, func(c *Config) {
		c.OnLink = func(in *Inbound) error {
			in.HangUp()
			links <- in
			return nil
		}
	})
	a := newStation(t, nil)
	if out, err := a.Dial(t.Context(), b.gid); err == nil {
		require.NoError(t, out.Close())
	}
	in := within(t, links, "inbound link")
	within(t, in.Done(), "hang-up")
	require.NoError(t, b.Port.Close())
	require.NoError(t, in.Close())
}

// TestHangUp_CountsUntilClosed: what a peer that never leaves takes is bounded.
func TestHangUp_CountsUntilClosed(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, func(c *Config) { c.MaxLinks = 1 })
	out, in := hungUpOn(t, a, b)
	_, err := a.Dial(t.Context(), b.gid)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, ReasonLimit, refused.Reason)
	require.NoError(t, out.Close())
	require.NoError(t, in.Close())
	a.dial(t, b.gid)
}
