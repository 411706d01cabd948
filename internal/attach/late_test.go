package attach

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
)

// connPair returns the ends of a connection, each with the process behind the other one.
func connPair(t testing.TB) (own, theirs *net.UnixConn, who peer) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), network)
		conn, err := net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		t.Cleanup(func() { _ = conn.Close() })
		ends[i] = conn.(*net.UnixConn)
	}
	who, err = peerOf(ends[0])
	require.NoError(t, err)
	return ends[0], ends[1], who
}

// TestAccept_SuspendedProcess: a hello that came in time makes a link, though the process stood still until
// the time was over.
func TestAccept_SuspendedProcess(t *testing.T) {
	s := newStation(t, nil)
	conn, dialer, who := connPair(t)
	hello, fds := s.hello(t)
	require.NoError(t, send(dialer, hello, fds...))
	expire(conn)
	s.accept(conn, who)
	require.Equal(t, Stats{Accepted: 1}, s.Stats())
	in := within(t, s.in, "inbound link")
	assert.True(t, in.Up())
	welcome, offered, err := receive(dialer)
	require.NoError(t, err)
	offered.close()
	assert.Equal(t, kindWelcome, welcome.kind)
	require.NoError(t, dialer.Close())
	within(t, in.Done(), "end of the link")

	conn, _, who = connPair(t)
	expire(conn)
	s.accept(conn, who)
	assert.Equal(t, Stats{Accepted: 1, TimedOut: 1}, s.Stats(), "what has not come is not waited for")
}

// TestDial_ProcessStood: an answer that came in time is heard, though the process stood still until the
// time was over.
func TestDial_ProcessStood(t *testing.T) {
	a, b := newStation(t, nil), newStation(t, nil)
	over, cancel := context.WithTimeout(t.Context(), -time.Hour)
	defer cancel()
	introduce := func(ctx context.Context, f *frame, fds ...int) (*Outbound, error) {
		conn, acceptor, who := connPair(t)
		if f != nil {
			require.NoError(t, send(acceptor, f, fds...))
		}
		out := &Outbound{Link: newLink(a.Port, conn, who, b.gid)}
		t.Cleanup(func() { _ = out.Close() })
		expire(conn)
		err := a.introduceIn(ctx, over, out)
		if err != nil {
			err = a.dialError(ctx, err)
		}
		return out, err
	}
	welcome := &frame{kind: kindWelcome, layout: testLayout, from: b.gid, to: a.gid, len0: testTableLen, arenaLen: testArenaLen}
	fds := []int{b.table.FD(), b.arena.FD(), b.wake.PeerFD()}

	out, err := introduce(t.Context(), welcome, fds...)
	require.NoError(t, err)
	assert.Len(t, out.Table.Bytes(), testTableLen)
	require.NoError(t, a.establish(out.Link))
	assert.True(t, out.Up())

	_, err = introduce(t.Context(), &frame{kind: kindRefuse, reason: ReasonLimit})
	assert.ErrorIs(t, err, ucs.ErrRejected)
	_, err = introduce(t.Context(), nil)
	assert.ErrorIs(t, err, ucs.ErrTimedOut, "what has not come is not waited for")
	_, err = introduce(over, welcome, fds...)
	assert.ErrorIs(t, err, context.DeadlineExceeded, "the caller's time is over")
}

// TestReceive_PeerLeft: a hang-up is heard after the deadline too.
func TestReceive_PeerLeft(t *testing.T) {
	conn, other, _ := connPair(t)
	require.NoError(t, other.Close())
	expire(conn)
	_, _, err := receive(conn)
	assert.ErrorIs(t, err, io.EOF)
}
