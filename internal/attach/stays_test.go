package attach

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestPeerStays: who ends a link is known to stay, who closes the port is not. Both sides
// learn it.
func TestPeerStays(t *testing.T) {
	for name, tt := range map[string]struct {
		end   func(s *station, l *Link) error
		stays bool
	}{
		"link is closed": {func(_ *station, l *Link) error { return l.Close() }, true},
		"port is closed": {func(s *station, _ *Link) error { return s.Port.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newStation(t, nil), newStation(t, nil)
			dialed, accepted := a.dial(t, b.gid).Link, within(t, b.in, "inbound link").Link
			reached, reaches := b.dial(t, a.gid).Link, within(t, a.in, "inbound link").Link
			for _, c := range []struct{ ended, told *Link }{{dialed, accepted}, {reaches, reached}} {
				require.NoError(t, tt.end(a, c.ended))
				within(t, c.told.Done(), "end of the link")
				assert.Equal(t, tt.stays, c.told.PeerStays())
			}
		})
	}
}

// TestPeerStays_DialGivenUp: the acceptor comes to answer when the dialer has left.
func TestPeerStays_DialGivenUp(t *testing.T) {
	links, gaveUp := make(chan *Inbound, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	b := newStation(t, func(c *Config) {
		c.OnLink = func(in *Inbound) error {
			cancel()
			<-gaveUp
			links <- in
			return nil
		}
	})
	_, err := newStation(t, nil).Dial(ctx, b.gid)
	close(gaveUp)
	require.ErrorIs(t, err, context.Canceled)
	in := within(t, links, "inbound link")
	within(t, in.Done(), "end of the link")
	assert.True(t, in.PeerStays())
}

// TestPeerStays_WelcomeUnread: the welcome has come when the dialer leaves.
func TestPeerStays_WelcomeUnread(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, nil)
	conn := b.connect(t)
	hello, fds := b.hello(t)
	require.NoError(t, send(conn.UnixConn, hello, fds...))
	in := within(t, b.in, "inbound link")
	raw, err := conn.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN
	}))
	l := &Link{port: a.Port, conn: conn.UnixConn, id: hello.link, WakeFD: -1}
	require.NoError(t, l.Close())
	within(t, in.Done(), "end of the link")
	assert.True(t, in.PeerStays())
}
