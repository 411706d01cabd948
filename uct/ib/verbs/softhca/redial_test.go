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

// hangUps listens in place of a port (the name is package attach's), and hangs up on
// who dials it. It sends for each.
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

// linkOf is the link to a port that a QP of datagrams has.
func linkOf(t *testing.T, qp *queuePair, gid verbs.GID) *outLink {
	t.Helper()
	l, err := qp.udLink(gid)
	require.NoError(t, err)
	return l
}

// awaitState waits until a link is up or down. A link that is down is not that of its port any more
// after redialPause.
func (l *outLink) awaitState(t *testing.T, state uint32) {
	t.Helper()
	testenv.ProgressWithin(t, testPatience, func() bool { return l.state.Load() == state })
}

// A port that hung up during the handshake is dialed again, not at once, but later.
func TestUDLink_RedialsAfterHangUp(t *testing.T) {
	h := openTest(t)
	qp := newTestQP(t, h)
	gid := verbs.GID{0: 0xfe, 1: 0x80}
	_, _ = rand.Read(gid[8:]) // another run on this host has another one
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

// A port that was up and hung up is left alone for a while, and so is one where nobody
// listens; the QP forgets it then.
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
