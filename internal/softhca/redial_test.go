package softhca

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// hangUps listens at the address of a port, which package attach defines, hangs up each dial, and sends
// a value for it.
func hangUps(t *testing.T, gid verbs.GID) <-chan struct{} {
	t.Helper()
	name := fmt.Sprintf("@gucx-softhca/%d/%s", os.Getuid(), hex.EncodeToString(gid[:]))
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
	require.NoError(t, err)
	done, came := make(chan struct{}), make(chan struct{}, 16)
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
			came <- struct{}{}
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		<-done
	})
	return came
}

// linkOf returns the link of a UD QP to a port.
func linkOf(t *testing.T, qp *queuePair, gid verbs.GID) *outLink {
	t.Helper()
	l, err := qp.udLink(gid)
	require.NoError(t, err)
	return l
}

// awaitState waits until a link is in a state. redialPause after it has gone down, it is no longer the
// link of its port.
func (l *outLink) awaitState(t *testing.T, state uint32) {
	t.Helper()
	testenv.ProgressWithin(t, testPatience, func() bool { return l.state.Load() == state })
}

// A port that has hung up during the handshake is dialed again, but only after redialPause.
func TestUDLink_RedialsAfterHangUp(t *testing.T) {
	h := openTest(t)
	qp := newTestQP(t, h)
	gid := verbs.GID{0: 0xfe, 1: 0x80}
	_, _ = rand.Read(gid[8:]) // runs on the same host have different GIDs
	came := hangUps(t, gid)
	first := linkOf(t, qp, gid)
	first.awaitState(t, linkDown)
	<-came
	first.again.Store(nanotime() + time.Hour.Nanoseconds())
	same, err := qp.udLink(gid)
	require.NoError(t, err)
	assert.Same(t, first, same)

	first.again.Store(nanotime())
	second := linkOf(t, qp, gid)
	second.awaitState(t, linkDown)
	<-came
	assert.NotSame(t, first, second)
	assert.Equal(t, []*outLink{second}, qp.req.udLinks)
}

// A port that has hung up, or that does not exist, is not dialed again before redialPause; then the QP
// removes its link.
func TestUDLink_RemovesDeadPeers(t *testing.T) {
	h := openTest(t)
	qp := newTestQP(t, h)
	unusedGID := verbs.GID{0: 0xfe, 1: 0x80, 15: 2}
	for end, link := range map[linkEnd]func() *outLink{
		endGone: func() *outLink { return linkOf(t, qp, unusedGID) },
		endClosed: func() *outLink {
			peer, err := open(Config{ArenaLen: 1 << 20}, &uarPool{})
			require.NoError(t, err)
			l := linkOf(t, qp, peer.gid)
			l.awaitState(t, linkUp)
			require.NoError(t, peer.Close())
			return l
		},
	} {
		l := link()
		l.awaitState(t, linkDown)
		assert.EqualValues(t, end, l.end.Load())
		l.again.Store(nanotime() + time.Hour.Nanoseconds())
		assert.Same(t, l, linkOf(t, qp, l.gid), "%d", end)
		l.again.Store(0)
	}
	next, err := qp.udLink(verbs.GID{0: 0xfe, 1: 0x80, 15: 3})
	require.NoError(t, err)
	assert.Equal(t, []*outLink{next}, qp.req.udLinks)
}

func TestIsPermanent_ClassifiesErrors(t *testing.T) {
	in := func(err error) error { return &ucs.OpError{TL: "softhca", Op: "attach", Err: err} }
	for _, err := range []error{ucs.ErrUnreachable, ucs.ErrInvalidAddr, attach.ErrForeignUser, attach.ErrProtocol,
		&attach.RefusedError{Reason: attach.ReasonLayout}, &attach.RefusedError{Reason: attach.ReasonOwner}} {
		assert.True(t, isPermanent(in(err)), "%v", err)
	}
	for _, err := range []error{ucs.ErrTimedOut, ucs.ErrConnReset, ucs.ErrNoMemory, &attach.RefusedError{Reason: attach.ReasonLimit}} {
		assert.False(t, isPermanent(in(err)), "%v", err)
	}
}
