package ucp_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucs"
)

// auxPair has two transports that carry handshakes; fud is better.
func auxPair(t *testing.T) (*ucppair.Pair, *faketp.Fabric) {
	slow := faketp.LikeTCP()
	slow.Latency = 10 * faketp.LikeUD().Latency
	p, f := ucppair.Fake(t, ucp.Config{WireupTimeout: time.Minute}, faketp.LikeRC(), faketp.LikeUD(), slow)
	return p.Connect(), f
}

// breakAux makes the auxiliary endpoints of an end fail.
func breakAux(x *ucppair.End, st ucs.Status) {
	for e := range x.W.EPs().All() {
		if !e.Linked() {
			continue
		}
		if ep := e.Carrier().(*conn.AM).EP(); ep != nil {
			ep.(*faketp.EP).Fail(st)
		}
	}
}

// checkConnects checks that the put r and a later put arrive over the best transport.
func checkConnects(t *testing.T, p *ucppair.Pair, r *ucp.Request) {
	t.Helper()
	sleepWith(2*firstPause, &p.A, &p.B)
	require.NoError(t, ended(t, r))
	require.NoError(t, p.Finish(p.A.EP.Put([]byte{6}, p.B.Mem.Addr()+1, p.A.Key, nil)))
	require.NoError(t, p.Flush())
	assert.Equal(t, []byte{5, 6}, p.B.Mem.Bytes()[:2])
	assert.Equal(t, "frc", kindOf(p.A.EP.Lane(0).Iface))
	for _, x := range []*ucppair.End{&p.A, &p.B} {
		for e := range x.W.EPs().All() {
			assert.NoError(t, e.Err())
			assert.True(t, e.Handshake().Quiet())
			assert.True(t, e.Carrier().Idle(), "closed after the handshake")
		}
	}
}

// TestAux_FallsBack: if a transport cannot open an auxiliary endpoint, the next one is used, at either side.
func TestAux_FallsBack(t *testing.T) {
	for _, who := range []string{"initiator", "responder"} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, f := auxPair(t)
				r, err := p.A.EP.Put([]byte{5}, p.B.Mem.Addr(), p.A.Key, nil)
				require.NoError(t, err)
				if who == "responder" {
					spin(&p.A)
				}
				f.FailNext("new ep fud", ucs.ErrNoMemory)
				checkConnects(t, p, r)
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
				r, err := p.A.EP.Put([]byte{5}, p.B.Mem.Addr(), p.A.Key, nil)
				require.NoError(t, err)
				turns := []*ucppair.End{&p.A, &p.B, &p.A}
				for k := range at + 1 {
					spin(turns[k])
				}
				f.DropArrivals()
				breakAux(turns[at], ucs.StatusTimedOut)
				checkConnects(t, p, r)
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
			r, err := p.A.EP.Put([]byte{5}, p.B.Mem.Addr(), p.A.Key, nil)
			require.NoError(t, err)
			for _, st := range tc.breaks {
				spin(&p.A)
				require.NoError(t, p.A.EP.Err())
				breakAux(&p.A, st)
			}
			spin(&p.A)
			for _, st := range tc.breaks {
				assert.ErrorIs(t, p.A.EP.Err(), st.Err())
			}
			assert.ErrorIs(t, ended(t, r), tc.breaks[0].Err())
			require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
		})
	}
}

// TestAux_NextHandshakeUsesTheBest: the failure of a transport counts for one handshake only.
func TestAux_NextHandshakeUsesTheBest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := auxPair(t)
		r, err := p.A.EP.Put([]byte{5}, p.B.Mem.Addr(), p.A.Key, nil)
		require.NoError(t, err)
		f.FailNext("new ep fud", ucs.ErrNoMemory)
		checkConnects(t, p, r)
		f.FailNext("new ep fud", ucs.ErrNoMemory)
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
		assert.Empty(t, f.Failures, "the DISCONNECT has tried it")
	})
}
