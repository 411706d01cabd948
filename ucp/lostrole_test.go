package ucp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// ownLanes is a pair with one transport for messages only, and another one for all other operations.
func ownLanes(t *testing.T, cfg ucp.Config) *ucppair.Pair {
	t.Helper()
	oneSided := faketp.LikeRC()
	oneSided.Caps &^= uct.CapAM
	p, _ := ucppair.Fake(t, cfg, oneSided, faketp.LikeUD())
	p.Both().Warm()
	checkMessages(p, &p.A, &p.B)
	checkMessages(p, &p.B, &p.A)
	require.Equal(t, "frc", kindOf(p.A.EP.Lane(wireup.RMA).Iface))
	require.Equal(t, "fud", kindOf(p.A.EP.Lane(wireup.AM).Iface))
	return p
}

// checkMessages sends messages of all lengths from one end to the other.
func checkMessages(p *ucppair.Pair, from, to *ucppair.End) {
	p.T.Helper()
	for i, n := range []int{8, 5000, tlsets.MemLen} {
		buf := make([]byte, n)
		recv, err := to.W.TagRecv(buf, uint64(i), exact, nil, nil)
		require.NoError(p.T, err)
		require.NoError(p.T, p.Finish(from.EP.TagSend(uint64(i), testenv.Pattern(n, i), nil)))
		require.NoError(p.T, p.Finish(recv, nil))
		testenv.RequireBytes(p.T, testenv.Pattern(n, i), buf)
	}
}

// requireLost checks the error of an operation whose role has no lane any more.
func requireLost(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, ucs.ErrTimedOut)
	assert.NotErrorIs(t, err, ucs.ErrEPFailed)
	assert.ErrorContains(t, err, "no lane left for rma|amo: ")
}

// TestLostRole_MessagesContinue: when the only lane for puts breaks, puts in progress and later ones fail with the reason.
// Messages continue.
func TestLostRole_MessagesContinue(t *testing.T) {
	for _, at := range []string{"here", "at the peer"} {
		t.Run(at, func(t *testing.T) {
			p := ownLanes(t, ucp.Config{})
			failed := false
			p.A.EP.SetOnError(func(*ucp.EP, error) { failed = true })
			x := p.A.EP.Lane(wireup.RMA).EP.(*faketp.EP)
			x.Iface.Frozen = true
			var reqs []*ucp.Request
			for range 2 * faketp.LikeRC().Depth { // some wait for resources
				r, err := p.A.EP.Get(make([]byte, 32), p.A.Key.Addr(), p.A.Key, nil)
				require.NoError(t, err)
				reqs = append(reqs, r)
			}
			if at == "here" {
				x.Fail(ucs.StatusTimedOut)
				x.Iface.Frozen = false
			} else {
				breakLane(p.B.EP, wireup.RMA, ucs.StatusTimedOut)
			}
			for _, r := range reqs {
				requireLost(t, p.Finish(r, nil))
			}
			x.Iface.Frozen = false
			_, err := p.A.EP.Put(make([]byte, 100), p.A.Key.Addr(), p.A.Key, nil)
			requireLost(t, err)
			requireLost(t, p.A.EP.AtomicPost(uct.AtomicAdd, 8, 1, p.A.Key.Addr(), p.A.Key))
			require.ErrorIs(t, p.Flush(), ucs.ErrTimedOut, "the flush reports it")
			require.NoError(t, p.Flush(), "once")
			require.NoError(t, p.A.EP.Fence())
			checkMessages(p, &p.A, &p.B)
			checkMessages(p, &p.B, &p.A)
			assert.NoError(t, p.A.EP.Err())
			assert.NoError(t, p.B.EP.Err())
			assert.False(t, failed)
		})
	}
}

// TestLostRole_PeerNeedsTheLane: the side that had no lane of its own for the role loses the same roles as the other
// side.
func TestLostRole_PeerNeedsTheLane(t *testing.T) {
	p := ownLanes(t, ucp.Config{})
	breakLane(p.A.EP, wireup.RMA, ucs.StatusTimedOut)
	p.Until(func() bool { return p.B.EP.Lanes().Use[wireup.RMA] == nil && p.B.EP.Handshake().Quiet() })
	r, err := p.B.EP.Put(make([]byte, 100), p.B.Key.Addr(), p.B.Key, nil)
	err = p.Finish(r, err)
	require.ErrorIs(t, err, ucs.ErrTimedOut)
	assert.NotErrorIs(t, err, ucs.ErrEPFailed)
	checkMessages(p, &p.A, &p.B)
	checkMessages(p, &p.B, &p.A)
}

// TestLostRole_DataOfAMessage: data that is in flight over the lane, or waits for it, is sent in fragments instead, and
// neither side gets an error.
func TestLostRole_DataOfAMessage(t *testing.T) {
	for _, scheme := range []string{"get_zcopy", "put_zcopy"} {
		for _, underWay := range []bool{true, false} {
			t.Run(fmt.Sprint(scheme, " under way ", underWay), func(t *testing.T) {
				p := ownLanes(t, ucp.Config{RndvScheme: scheme, RndvThresh: 1000})
				mover := &p.B
				if scheme == "put_zcopy" {
					mover = &p.A
				}
				sendTagged(t, p, tlsets.MemLen, 4)
				e := mover.EP.Lane(wireup.RMA).EP.(*faketp.EP)
				e.Iface.Frozen, e.Iface.Stuck = underWay, !underWay
				send, recv := startTagged(t, p, tlsets.MemLen, 5)
				if underWay {
					p.Until(func() bool { return e.InFlight > 0 })
					e.Fail(ucs.StatusTimedOut)
				} else {
					p.Until(e.Queue.Blocks)
					e.Fail(ucs.StatusRemoteAccess)
				}
				e.Iface.Frozen, e.Iface.Stuck = false, false
				checkRepeated(t, p, mover, send, recv)
				sendTagged(t, p, tlsets.MemLen, 6)
			})
		}
	}
}

// TestLostRole_NoOtherLane: without another lane the EP fails, as it does when its only lane breaks.
func TestLostRole_NoOtherLane(t *testing.T) {
	oneSided := faketp.LikeRC()
	oneSided.Caps &^= uct.CapAM
	p, _ := ucppair.Fake(t, ucp.Config{}, oneSided, faketp.LikeUD())
	p.Connect().Warm()
	breakLane(p.A.EP, wireup.RMA, ucs.StatusTimedOut)
	p.Until(func() bool { return p.A.EP.Err() != nil })
	require.ErrorIs(t, p.A.EP.Err(), ucs.ErrTimedOut)
}
