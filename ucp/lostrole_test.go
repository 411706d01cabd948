package ucp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// ownLanes is a pair with one transport for messages only, and another one for all other operations.
func ownLanes(t *testing.T, cfg Config) *pair {
	t.Helper()
	oneSided := faketp.LikeRC()
	oneSided.Caps &^= uct.CapAM
	p, _ := fakePair(t, cfg, oneSided, faketp.LikeUD())
	p.both().warm()
	p.checkMessages(&p.a, &p.b)
	p.checkMessages(&p.b, &p.a)
	require.Equal(t, "frc", p.a.ep.lane(wireup.RMA).Iface.kind())
	require.Equal(t, "fud", p.a.ep.lane(wireup.AM).Iface.kind())
	return p
}

// checkMessages sends messages of all lengths from one end to the other.
func (p *pair) checkMessages(from, to *end) {
	p.t.Helper()
	for i, n := range []int{8, 5000, memLen} {
		buf := make([]byte, n)
		recv, err := to.w.TagRecv(buf, uint64(i), exact, nil, nil)
		require.NoError(p.t, err)
		require.NoError(p.t, p.finish(from.ep.TagSend(uint64(i), pattern(n, i), nil)))
		require.NoError(p.t, p.finish(recv, nil))
		requireBytes(p.t, pattern(n, i), buf)
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
			p := ownLanes(t, Config{})
			failed := false
			p.a.ep.onError = func(*EP, error) { failed = true }
			x := p.a.ep.lane(wireup.RMA).EP.(*faketp.EP)
			x.Iface.Frozen = true
			var reqs []*Request
			for range 2 * faketp.LikeRC().Depth { // some wait for resources
				r, err := p.a.ep.Get(make([]byte, 32), p.a.key.Addr(), p.a.key, nil)
				require.NoError(t, err)
				reqs = append(reqs, r)
			}
			if at == "here" {
				x.Fail(ucs.StatusTimedOut)
				x.Iface.Frozen = false
			} else {
				breakLane(p.b.ep, wireup.RMA, ucs.StatusTimedOut)
			}
			for _, r := range reqs {
				requireLost(t, p.finish(r, nil))
			}
			x.Iface.Frozen = false
			_, err := p.a.ep.Put(make([]byte, 100), p.a.key.Addr(), p.a.key, nil)
			requireLost(t, err)
			requireLost(t, p.a.ep.AtomicPost(uct.AtomicAdd, 8, 1, p.a.key.Addr(), p.a.key))
			require.ErrorIs(t, p.flush(), ucs.ErrTimedOut, "the flush reports it")
			require.NoError(t, p.flush(), "once")
			require.NoError(t, p.a.ep.Fence())
			p.checkMessages(&p.a, &p.b)
			p.checkMessages(&p.b, &p.a)
			assert.NoError(t, p.a.ep.Err())
			assert.NoError(t, p.b.ep.Err())
			assert.False(t, failed)
		})
	}
}

// TestLostRole_PeerNeedsTheLane: the side that had no lane of its own for the role loses the same roles as the other
// side.
func TestLostRole_PeerNeedsTheLane(t *testing.T) {
	p := ownLanes(t, Config{})
	breakLane(p.a.ep, wireup.RMA, ucs.StatusTimedOut)
	p.until(func() bool { return p.b.ep.link.lanes.Use[wireup.RMA] == nil && p.b.ep.link.conn.Quiet() })
	r, err := p.b.ep.Put(make([]byte, 100), p.b.key.Addr(), p.b.key, nil)
	err = p.finish(r, err)
	require.ErrorIs(t, err, ucs.ErrTimedOut)
	assert.NotErrorIs(t, err, ucs.ErrEPFailed)
	p.checkMessages(&p.a, &p.b)
	p.checkMessages(&p.b, &p.a)
}

// TestLostRole_DataOfAMessage: data that is in flight over the lane, or waits for it, is sent in fragments instead, and
// neither side gets an error.
func TestLostRole_DataOfAMessage(t *testing.T) {
	for _, scheme := range []string{"get_zcopy", "put_zcopy"} {
		for _, underWay := range []bool{true, false} {
			t.Run(fmt.Sprint(scheme, " under way ", underWay), func(t *testing.T) {
				p := ownLanes(t, Config{RndvScheme: scheme, RndvThresh: 1000})
				mover := &p.b
				if scheme == "put_zcopy" {
					mover = &p.a
				}
				p.sendTagged(t, memLen, 4)
				e := mover.ep.lane(wireup.RMA).EP.(*faketp.EP)
				e.Iface.Frozen, e.Iface.Stuck = underWay, !underWay
				send, recv := p.startTagged(t, memLen, 5)
				if underWay {
					p.until(func() bool { return e.InFlight > 0 })
					e.Fail(ucs.StatusTimedOut)
				} else {
					p.until(e.Queue.Blocks)
					e.Fail(ucs.StatusRemoteAccess)
				}
				e.Iface.Frozen, e.Iface.Stuck = false, false
				p.checkRepeated(t, mover, send, recv)
				p.sendTagged(t, memLen, 6)
			})
		}
	}
}

// TestLostRole_NoOtherLane: without another lane the EP fails, as it does when its only lane breaks.
func TestLostRole_NoOtherLane(t *testing.T) {
	oneSided := faketp.LikeRC()
	oneSided.Caps &^= uct.CapAM
	p, _ := fakePair(t, Config{}, oneSided, faketp.LikeUD())
	p.connect().warm()
	breakLane(p.a.ep, wireup.RMA, ucs.StatusTimedOut)
	p.until(func() bool { return p.a.ep.Err() != nil })
	require.ErrorIs(t, p.a.ep.Err(), ucs.ErrTimedOut)
}
