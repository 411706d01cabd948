package attach

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
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

// TestHangUp_GuardsRemainUntilPeerCloses: the port that hung up closes, and still has the guard of
// a peer until that has left too.
func TestHangUp_GuardsRemainUntilPeerCloses(t *testing.T) {
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
	c.Tell(t, "dial %x", a.gid)
	require.Equal(t, "up", c.Line(t))
	in := within(t, a.in, "inbound link")
	in.HangUp()
	require.NoError(t, a.Port.Close())
	require.True(t, in.Up(), "the peer has not closed its end")
	require.NoError(t, c.Process.Kill())
	within(t, in.Done(), "death of the peer")
	require.NoError(t, in.Close())
}

// hungUpBeforeWelcome returns a port, and a link to it of which the owner has hung up as
// soon as it had it.
func hungUpBeforeWelcome(t *testing.T) (*station, *Inbound) {
	t.Helper()
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
	return b, within(t, links, "inbound link")
}

// TestHangUp_BeforeWelcome: an owner may hang up as soon as it has the link.
func TestHangUp_BeforeWelcome(t *testing.T) {
	b, in := hungUpBeforeWelcome(t)
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

// closingUnder has a peer dial a port whose Close begins while onLink runs, and returns the link
// when the port is closed.
func closingUnder(t *testing.T, onLink func(*Inbound)) *Inbound {
	t.Helper()
	links := make(chan *Inbound, 1)
	var b *station
	b = newStation(t, func(c *Config) {
		c.OnLink = func(in *Inbound) error {
			onLink(in)
			links <- in
			<-b.ctx.Done()
			return nil
		}
	})
	a := newStation(t, nil)
	dialed := make(chan struct{})
	go func() {
		defer close(dialed)
		if out, err := a.Dial(t.Context(), b.gid); err == nil {
			_ = out.Close()
		}
	}()
	in := within(t, links, "inbound link")
	require.NoError(t, b.Port.Close())
	within(t, dialed, "end of the dial")
	return in
}

// TestHangUp_WhileThePortCloses: the link is its owner's, who is told of its end.
func TestHangUp_WhileThePortCloses(t *testing.T) {
	left := make(chan struct{})
	in := closingUnder(t, func(in *Inbound) {
		in.AfterDown(func() { close(left) })
		in.HangUp()
	})
	within(t, left, "hang-up of the peer")
	within(t, in.Done(), "end of the link")
	assert.Zero(t, in.Seg.Bytes()[0], "still mapped")
	require.NoError(t, in.Close())
}

// TestClose_WhileALinkIsAccepted: the port closes it, and so it is down.
func TestClose_WhileALinkIsAccepted(t *testing.T) {
	in := closingUnder(t, func(*Inbound) {})
	within(t, in.Done(), "end of the link")
	assert.False(t, in.Up())
}

// TestHangUp_BeforeThePortHasTheLink: Close leaves it mapped.
func TestHangUp_BeforeThePortHasTheLink(t *testing.T) {
	b, in := hungUpBeforeWelcome(t)
	require.NoError(t, b.Port.Close())
	assert.Zero(t, in.Seg.Bytes()[0], "still mapped")
	within(t, in.Done(), "hang-up")
	require.NoError(t, in.Close())
}

// TestHangUp_PortDoesNotWait: a port closes while a peer has a link that the owner hung up before the port had
// it.
func TestHangUp_PortDoesNotWait(t *testing.T) {
	links := make(chan *Inbound, 1)
	b := newStation(t, func(c *Config) {
		c.OnLink = func(in *Inbound) error {
			in.HangUp()
			links <- in
			return nil
		}
	})
	peer := b.connect(t)
	hello, fds := b.hello(t)
	require.NoError(t, send(peer.UnixConn, hello, fds...))
	in := within(t, links, "inbound link")
	testenv.ProgressWithin(t, watchdog, func() bool { return len(b.slots) == 0 }) // it is watched
	closed := make(chan error, 1)
	go func() { closed <- b.Port.Close() }()
	require.NoError(t, within(t, closed, "end of Close"))
	assert.True(t, in.Up(), "the peer has not closed its end")
	require.NoError(t, peer.Close())
	within(t, in.Done(), "end of the link")
	require.NoError(t, in.Close())
}
