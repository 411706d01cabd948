package ucp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucs"
)

// auxPair has two transports that carry handshakes; fud is better.
func auxPair(t *testing.T) (*pair, *faketp.Fabric) {
	slow := faketp.LikeTCP()
	slow.Latency = 10 * faketp.LikeUD().Latency
	p, f := fakePair(t, Config{WireupTimeout: time.Minute}, faketp.LikeRC(), faketp.LikeUD(), slow)
	return p.connect(), f
}

// breakAux makes the auxiliary endpoints of an end fail.
func (x *end) breakAux(st ucs.Status) {
	for e := range x.w.eps.All() {
		if e.link == nil {
			continue
		}
		if ep := e.link.carrier.(*conn.AM).EP(); ep != nil {
			ep.(*faketp.EP).Fail(st)
		}
	}
}

// checkConnects checks that the put r and a later put arrive over the best transport.
func (p *pair) checkConnects(t *testing.T, r *Request) {
	t.Helper()
	sleepWith(2*firstPause, &p.a, &p.b)
	require.NoError(t, ended(t, r))
	require.NoError(t, p.finish(p.a.ep.Put([]byte{6}, p.b.mem.Addr()+1, p.a.key, nil)))
	require.NoError(t, p.flush())
	assert.Equal(t, []byte{5, 6}, p.b.mem.Bytes()[:2])
	assert.Equal(t, "frc", p.a.ep.lane(0).Iface.kind())
	for _, x := range []*end{&p.a, &p.b} {
		for e := range x.w.eps.All() {
			assert.NoError(t, e.Err())
			assert.True(t, e.link.conn.Quiet())
			assert.True(t, e.link.carrier.Idle(), "closed after the handshake")
		}
	}
}

// TestAux_FallsBack: if a transport cannot open an auxiliary endpoint, the next one is used, at either side.
func TestAux_FallsBack(t *testing.T) {
	for _, who := range []string{"initiator", "responder"} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, f := auxPair(t)
				r, err := p.a.ep.Put([]byte{5}, p.b.mem.Addr(), p.a.key, nil)
				require.NoError(t, err)
				if who == "responder" {
					p.a.spin()
				}
				f.FailNext("new ep fud", ucs.ErrNoMemory)
				p.checkConnects(t, r)
				assert.Empty(t, f.Failures, "it was tried")
			})
		})
	}
}

// TestAux_BreaksAtAnyStep: if a transport breaks after it has accepted a message, and the message is lost, the next
// transport retransmits it.
func TestAux_BreaksAtAnyStep(t *testing.T) {
	for at, name := range []string{"request", "reply", "ack"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, f := auxPair(t)
				r, err := p.a.ep.Put([]byte{5}, p.b.mem.Addr(), p.a.key, nil)
				require.NoError(t, err)
				turns := []*end{&p.a, &p.b, &p.a}
				for k := range at + 1 {
					turns[k].spin()
				}
				f.DropArrivals()
				turns[at].breakAux(ucs.StatusTimedOut)
				p.checkConnects(t, r)
			})
		})
	}
}

// TestAux_AllFail: an EP whose auxiliary transports have all failed fails with their reasons. If the peer is gone, the
// EP fails at once.
func TestAux_AllFail(t *testing.T) {
	for _, tc := range []struct {
		name   string
		breaks []ucs.Status
	}{
		{"each", []ucs.Status{ucs.StatusTimedOut, ucs.StatusIOError}},
		{"the peer is gone", []ucs.Status{ucs.StatusConnReset}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, _ := auxPair(t)
			r, err := p.a.ep.Put([]byte{5}, p.b.mem.Addr(), p.a.key, nil)
			require.NoError(t, err)
			for _, st := range tc.breaks {
				p.a.spin()
				require.NoError(t, p.a.ep.Err())
				p.a.breakAux(st)
			}
			p.a.spin()
			for _, st := range tc.breaks {
				assert.ErrorIs(t, p.a.ep.Err(), st.Err())
			}
			assert.ErrorIs(t, ended(t, r), tc.breaks[0].Err())
			require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		})
	}
}

// TestAux_NextHandshakeUsesTheBest: the failure of a transport counts for one handshake only.
func TestAux_NextHandshakeUsesTheBest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := auxPair(t)
		r, err := p.a.ep.Put([]byte{5}, p.b.mem.Addr(), p.a.key, nil)
		require.NoError(t, err)
		f.FailNext("new ep fud", ucs.ErrNoMemory)
		p.checkConnects(t, r)
		f.FailNext("new ep fud", ucs.ErrNoMemory)
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		assert.Empty(t, f.Failures, "the DISCONNECT has tried it")
	})
}
