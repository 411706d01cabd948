package ucp_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// firstPause is the time after which a handshake first retransmits a message.
const firstPause = time.Second

// spin makes progress on one end only.
func spin(x *ucppair.End) {
	for range 4 * engine.IdleTicks {
		x.W.Progress()
	}
}

// sleepAlone advances virtual time while only a makes progress.
func sleepAlone(p *ucppair.Pair, d time.Duration) { sleepWith(d, &p.A) }

// sleepWith advances virtual time while some ends make progress.
func sleepWith(d time.Duration, ends ...*ucppair.End) {
	for d > 0 {
		step := min(d, engine.AlarmLate)
		d -= step
		time.Sleep(step)
		synctest.Wait()
		for _, x := range ends {
			spin(x)
		}
	}
}

// ended returns the result of an operation, which must be done.
func ended(t *testing.T, r *ucp.Request) error {
	t.Helper()
	require.True(t, r.Done())
	err := r.Result()
	r.Release()
	return err
}

// postEveryKind starts one operation of each class on a's EP.
func postEveryKind(p *ucppair.Pair) (reqs []*ucp.Request) {
	p.T.Helper()
	add := func(r *ucp.Request, err error) {
		require.NoError(p.T, err)
		require.NotNil(p.T, r)
		reqs = append(reqs, r)
	}
	e, key, addr := p.A.EP, p.A.Key, p.B.Mem.Addr()
	add(e.Put([]byte{1}, addr, key, nil))
	add(e.Get(make([]byte, 500), addr, key, nil))
	add(e.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), addr, key))
	require.NoError(p.T, e.AtomicPost(uct.AtomicXor, 4, 1, addr, key))
	require.NoError(p.T, e.Fence())
	add(e.Put([]byte{2}, addr, key, nil))
	add(e.Flush())
	add(p.A.W.Flush())
	return reqs
}

// TestWireupTimeout_FailsAllOperations: if the peer receives the REQUEST and does not reply, the EP fails at the
// configured time, and each operation completes once, with that reason.
func TestWireupTimeout_FailsAllOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 7 * time.Second
		p, _ := ucppair.Fake(t, ucp.Config{WireupTimeout: limit}, faketp.LikeRC(), faketp.LikeUD())
		failures := 0
		p.Connect()
		p.A.EP.SetOnError(func(*ucp.EP, error) { failures++ })
		reqs := postEveryKind(p)
		spin(&p.A)
		sleepAlone(p, limit-time.Millisecond)
		for _, r := range reqs {
			assert.False(t, r.Done(), "too early")
		}
		sleepAlone(p, time.Millisecond)
		for _, r := range reqs {
			require.True(t, r.Done())
			if r.EP() != nil { // a flush of the worker skips EPs that have failed
				assert.ErrorIs(t, r.Result(), ucs.ErrTimedOut)
			}
			r.Release()
		}
		assert.Equal(t, 1, failures)
		assert.ErrorIs(t, p.A.EP.Err(), ucs.ErrEPFailed)
		assert.ErrorIs(t, p.A.EP.Err(), ucs.ErrTimedOut)
		assert.ErrorContains(t, p.A.EP.Err(), "no reply to the handshake for 7s")
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
		idle(p)
		assert.Zero(t, p.A.W.EPs().Len())
		assert.Zero(t, p.B.W.EPs().Len(), "the peer was notified")
	})
}

// TestWireupTimeout_OtherEPsContinue: only the EP of the silent peer fails.
func TestWireupTimeout_OtherEPsContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := faketp.New(faketp.LikeRC(), faketp.LikeUD())
		set := tlsets.Set{Open: func(testing.TB) (a, b []uct.Component) { return []uct.Component{f}, []uct.Component{f} }}
		p := ucppair.New(t, set, ucp.Config{WireupTimeout: 5 * time.Second}).Connect().Warm()
		q := ucppair.New(t, set, ucp.Config{})
		spin(&p.A)
		silent, err := p.A.W.NewEP(q.B.W.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		key, err := silent.Unpack(q.B.Mem.Pack())
		require.NoError(t, err)
		defer key.Close()
		r, err := silent.Put([]byte{1}, q.B.Mem.Addr(), key, nil)
		require.NoError(t, err)
		spin(&p.A)
		sleepAlone(p, 5*time.Second)
		assert.ErrorIs(t, ended(t, r), ucs.ErrTimedOut)
		require.NoError(t, p.A.EP.Err())
		require.NoError(t, p.Finish(p.A.EP.Put([]byte{1}, p.B.Mem.Addr(), p.A.Key, nil)))
		require.NoError(t, p.Flush())
	})
}

// TestWireupTimeout_SlowPeer: EPs connect if the responder replies late but before the timeout, or if the initiator
// handles the reply late.
func TestWireupTimeout_SlowPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := ucppair.Fake(t, ucp.Config{WireupTimeout: 10 * time.Second}, faketp.LikeRC(), faketp.LikeUD())
		p.Connect()
		r, err := p.A.EP.Put([]byte{5}, p.B.Mem.Addr(), p.A.Key, nil)
		require.NoError(t, err)
		spin(&p.A)
		sleepAlone(p, 9*time.Second)
		spin(&p.B)
		sleepWith(9*time.Second, &p.B) // a does not handle the reply
		require.Equal(t, 1, p.B.W.EPs().Len(), "the EP of the responder has not failed")
		spin(&p.A)
		require.NoError(t, p.Finish(r, nil))
		require.NoError(t, p.Flush())
	})
}

// TestWireupTimeout_RareProgress: a worker that rarely makes progress detects the timeout too.
func TestWireupTimeout_RareProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := ucppair.Fake(t, ucp.Config{WireupTimeout: 10 * time.Second}, faketp.LikeRC(), faketp.LikeUD())
		p.Connect()
		r, err := p.A.EP.Put([]byte{5}, p.B.Mem.Addr(), p.A.Key, nil)
		require.NoError(t, err)
		for range 3 * engine.IdleTicks { // the engine checks the alarm every engine.IdleTicks calls
			p.A.W.Progress()
			time.Sleep(time.Second)
			synctest.Wait()
		}
		assert.ErrorIs(t, ended(t, r), ucs.ErrTimedOut)
	})
}

// TestWireupTimeout_Never: with inf an operation waits without a timeout.
func TestWireupTimeout_Never(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := ucppair.Fake(t, ucp.Config{WireupTimeout: config.Infinite}, faketp.LikeRC(), faketp.LikeUD())
		p.Connect()
		r, err := p.A.EP.Put([]byte{5}, p.B.Mem.Addr(), p.A.Key, nil)
		require.NoError(t, err)
		spin(&p.A)
		for range 100 {
			time.Sleep(time.Hour)
			synctest.Wait()
			spin(&p.A)
		}
		require.NoError(t, p.Finish(r, nil))
		require.NoError(t, p.Flush())
		assert.Equal(t, byte(5), p.B.Mem.Bytes()[0])
	})
}

// TestWireup_MessageLost: a handshake message that the peer has dropped for lack of resources is retransmitted.
func TestWireup_MessageLost(t *testing.T) {
	for _, lose := range []string{"request", "reply", "ack"} {
		t.Run(lose, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
				p.Connect()
				r, err := p.A.EP.Put([]byte{5}, p.B.Mem.Addr(), p.A.Key, nil)
				require.NoError(t, err)
				turns := []*ucppair.End{&p.A, &p.B, &p.A}
				for k, name := range []string{"request", "reply", "ack"} {
					spin(turns[k])
					if name == lose {
						f.DropArrivals()
					}
				}
				sleepWith(2*firstPause, &p.A, &p.B)
				require.NoError(t, ended(t, r))
				require.NoError(t, p.Flush())
				assert.Equal(t, byte(5), p.B.Mem.Bytes()[0])
				idle(p)
				for e := range p.B.W.EPs().All() {
					assert.True(t, e.Handshake().Quiet(), "the responder has its ACK")
				}
			})
		})
	}
}

// TestClose_DeadlineOfAStoppedPeer: if the peer receives nothing, so that the DISCONNECT cannot be sent, Close
// completes at its deadline, and so does the EP.
func TestClose_DeadlineOfAStoppedPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := ucppair.Fake(t, ucp.Config{WireupTimeout: 5 * time.Second}, faketp.LikeRC(), faketp.LikeUD())
		p.Connect().Warm()
		idle(p)
		ud := f.IfaceOf(0, 1)
		ud.Stuck = true
		r, err := p.A.EP.Close(ucp.CloseFlush)
		require.NoError(t, err)
		require.NotNil(t, r)
		spin(&p.A)
		sleepAlone(p, 5*time.Second-time.Millisecond)
		assert.False(t, r.Done())
		sleepAlone(p, time.Millisecond)
		assert.NoError(t, ended(t, r))
		assert.Zero(t, p.A.W.EPs().Len())
		ud.Stuck = false
	})
}

// TestAlarm_NoTimerWithoutHandshake: no timer runs for connected EPs.
func TestAlarm_NoTimerWithoutHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
		p.Connect().Warm()
		idle(p)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.True(t, p.A.W.Engine().Alarm.Due(), "the timer of the handshake fires once")
		spin(&p.A)
		sleepAlone(p, engine.AlarmGrace)
		assert.False(t, p.A.W.Engine().Alarm.Pending())
		_, ok := p.A.EP.Deadline()
		assert.False(t, ok)
	})
}

// TestAlarm_ChecksConnectedEPsOnly: the alarm does not check EPs that have no connection or are closed.
func TestAlarm_ChecksConnectedEPsOnly(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	const idle, used = 100, 3
	for range idle {
		_, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
		require.NoError(t, err)
	}
	var eps []*ucp.EP
	for range used {
		ep, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		require.NoError(t, p.Finish(ep.TagSend(1, []byte{1}, nil)))
		eps = append(eps, ep)
	}
	assert.Equal(t, used, p.A.W.LinkedEPs())
	for i, ep := range eps {
		require.NoError(t, p.Finish(ep.Close(ucp.CloseFlush)))
		p.Until(func() bool { return p.A.W.LinkedEPs() == used-1-i })
	}
	p.Until(func() bool { return p.B.W.LinkedEPs() == 0 })
}
