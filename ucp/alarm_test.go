package ucp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// firstPause is the time after which a handshake first retransmits a message.
const firstPause = time.Second

// spin makes progress on one end only.
func (x *end) spin() {
	for range 4 * engine.IdleTicks {
		x.w.Progress()
	}
}

// sleepAlone advances virtual time while only a makes progress.
func (p *pair) sleepAlone(d time.Duration) { sleepWith(d, &p.a) }

// sleepWith advances virtual time while some ends make progress.
func sleepWith(d time.Duration, ends ...*end) {
	for d > 0 {
		step := min(d, engine.AlarmLate)
		d -= step
		time.Sleep(step)
		synctest.Wait()
		for _, x := range ends {
			x.spin()
		}
	}
}

// ended returns the result of an operation, which must be done.
func ended(t *testing.T, r *Request) error {
	t.Helper()
	require.True(t, r.Done())
	err := r.err()
	r.Release()
	return err
}

// everyKind starts one operation of each class on a's EP.
func (p *pair) everyKind() (reqs []*Request) {
	p.t.Helper()
	add := func(r *Request, err error) {
		require.NoError(p.t, err)
		require.NotNil(p.t, r)
		reqs = append(reqs, r)
	}
	e, key, addr := p.a.ep, p.a.key, p.b.mem.Addr()
	add(e.Put([]byte{1}, addr, key, nil))
	add(e.Get(make([]byte, 500), addr, key, nil))
	add(e.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), addr, key))
	require.NoError(p.t, e.AtomicPost(uct.AtomicXor, 4, 1, addr, key))
	require.NoError(p.t, e.Fence())
	add(e.Put([]byte{2}, addr, key, nil))
	add(e.Flush())
	add(p.a.w.Flush())
	return reqs
}

// TestWireupTimeout_FailsAllOperations: if the peer receives the REQUEST and does not reply, the EP fails at the
// configured time, and each operation completes once, with that reason.
func TestWireupTimeout_FailsAllOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 7 * time.Second
		p, _ := fakePair(t, Config{WireupTimeout: limit}, faketp.LikeRC(), faketp.LikeUD())
		failures := 0
		p.connect()
		p.a.ep.onError = func(*EP, error) { failures++ }
		reqs := p.everyKind()
		p.a.spin()
		p.sleepAlone(limit - time.Millisecond)
		for _, r := range reqs {
			assert.False(t, r.Done(), "too early")
		}
		p.sleepAlone(time.Millisecond)
		for _, r := range reqs {
			require.True(t, r.Done())
			if r.ep != nil { // a flush of the worker skips EPs that have failed
				assert.ErrorIs(t, r.err(), ucs.ErrTimedOut)
			}
			r.Release()
		}
		assert.Equal(t, 1, failures)
		assert.ErrorIs(t, p.a.ep.Err(), ucs.ErrEPFailed)
		assert.ErrorIs(t, p.a.ep.Err(), ucs.ErrTimedOut)
		assert.ErrorContains(t, p.a.ep.Err(), "no reply to the handshake for 7s")
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		p.idle()
		assert.Zero(t, p.a.w.eps.Len())
		assert.Zero(t, p.b.w.eps.Len(), "the peer was notified")
	})
}

// TestWireupTimeout_OtherEPsContinue: only the EP of the silent peer fails.
func TestWireupTimeout_OtherEPsContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := faketp.New(faketp.LikeRC(), faketp.LikeUD())
		set := tlsets.Set{Open: func(testing.TB) (a, b []uct.Component) { return []uct.Component{f}, []uct.Component{f} }}
		p := newPair(t, set, Config{WireupTimeout: 5 * time.Second}).connect().warm()
		q := newPair(t, set, Config{})
		p.a.spin()
		silent, err := p.a.w.NewEP(q.b.w.Address(), EPConfig{})
		require.NoError(t, err)
		key, err := silent.Unpack(q.b.mem.Pack())
		require.NoError(t, err)
		defer key.Close()
		r, err := silent.Put([]byte{1}, q.b.mem.Addr(), key, nil)
		require.NoError(t, err)
		p.a.spin()
		p.sleepAlone(5 * time.Second)
		assert.ErrorIs(t, ended(t, r), ucs.ErrTimedOut)
		require.NoError(t, p.a.ep.Err())
		require.NoError(t, p.finish(p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)))
		require.NoError(t, p.flush())
	})
}

// TestWireupTimeout_SlowPeer: EPs connect if the responder replies late but before the timeout, or if the initiator
// handles the reply late.
func TestWireupTimeout_SlowPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := fakePair(t, Config{WireupTimeout: 10 * time.Second}, faketp.LikeRC(), faketp.LikeUD())
		p.connect()
		r, err := p.a.ep.Put([]byte{5}, p.b.mem.Addr(), p.a.key, nil)
		require.NoError(t, err)
		p.a.spin()
		p.sleepAlone(9 * time.Second)
		p.b.spin()
		sleepWith(9*time.Second, &p.b) // a does not handle the reply
		require.Equal(t, 1, p.b.w.eps.Len(), "the EP of the responder has not failed")
		p.a.spin()
		require.NoError(t, p.finish(r, nil))
		require.NoError(t, p.flush())
	})
}

// TestWireupTimeout_RareProgress: a worker that rarely makes progress detects the timeout too.
func TestWireupTimeout_RareProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := fakePair(t, Config{WireupTimeout: 10 * time.Second}, faketp.LikeRC(), faketp.LikeUD())
		p.connect()
		r, err := p.a.ep.Put([]byte{5}, p.b.mem.Addr(), p.a.key, nil)
		require.NoError(t, err)
		for range 3 * engine.IdleTicks { // the engine checks the alarm every engine.IdleTicks calls
			p.a.w.Progress()
			time.Sleep(time.Second)
			synctest.Wait()
		}
		assert.ErrorIs(t, ended(t, r), ucs.ErrTimedOut)
	})
}

// TestWireupTimeout_Never: with inf an operation waits without a timeout.
func TestWireupTimeout_Never(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := fakePair(t, Config{WireupTimeout: config.Infinite}, faketp.LikeRC(), faketp.LikeUD())
		p.connect()
		r, err := p.a.ep.Put([]byte{5}, p.b.mem.Addr(), p.a.key, nil)
		require.NoError(t, err)
		p.a.spin()
		for range 100 {
			time.Sleep(time.Hour)
			synctest.Wait()
			p.a.spin()
		}
		require.NoError(t, p.finish(r, nil))
		require.NoError(t, p.flush())
		assert.Equal(t, byte(5), p.b.mem.Bytes()[0])
	})
}

// TestWireup_MessageLost: a handshake message that the peer has dropped for lack of resources is retransmitted.
func TestWireup_MessageLost(t *testing.T) {
	for _, lose := range []string{"request", "reply", "ack"} {
		t.Run(lose, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
				p.connect()
				r, err := p.a.ep.Put([]byte{5}, p.b.mem.Addr(), p.a.key, nil)
				require.NoError(t, err)
				turns := []*end{&p.a, &p.b, &p.a}
				for k, name := range []string{"request", "reply", "ack"} {
					turns[k].spin()
					if name == lose {
						f.DropArrivals()
					}
				}
				sleepWith(2*firstPause, &p.a, &p.b)
				require.NoError(t, ended(t, r))
				require.NoError(t, p.flush())
				assert.Equal(t, byte(5), p.b.mem.Bytes()[0])
				p.idle()
				for e := range p.b.w.eps.All() {
					assert.True(t, e.link.conn.Quiet(), "the responder has its ACK")
				}
			})
		})
	}
}

// TestClose_DeadlineOfAStoppedPeer: if the peer receives nothing, so that the DISCONNECT cannot be sent, Close
// completes at its deadline, and so does the EP.
func TestClose_DeadlineOfAStoppedPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := fakePair(t, Config{WireupTimeout: 5 * time.Second}, faketp.LikeRC(), faketp.LikeUD())
		p.connect().warm()
		p.idle()
		ud := f.IfaceOf(0, 1)
		ud.Stuck = true
		r, err := p.a.ep.Close(CloseFlush)
		require.NoError(t, err)
		require.NotNil(t, r)
		p.a.spin()
		p.sleepAlone(5*time.Second - time.Millisecond)
		assert.False(t, r.Done())
		p.sleepAlone(time.Millisecond)
		assert.NoError(t, ended(t, r))
		assert.Zero(t, p.a.w.eps.Len())
		ud.Stuck = false
	})
}

// TestAlarm_NoTimerWithoutHandshake: no timer runs for connected EPs.
func TestAlarm_NoTimerWithoutHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
		p.connect().warm()
		p.idle()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.True(t, p.a.w.engine.Alarm.Due(), "the timer of the handshake fires once")
		p.a.spin()
		p.sleepAlone(engine.AlarmGrace)
		assert.False(t, p.a.w.engine.Alarm.Pending())
		_, ok := p.a.ep.deadline()
		assert.False(t, ok)
	})
}

// TestWireupTimeout_OfTheEnvironment: the timeout has the syntax of UCX for times.
func TestWireupTimeout_OfTheEnvironment(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want time.Duration // 0: no timeout
	}{
		{"5", 5 * time.Second}, {"250ms", 250 * time.Millisecond}, {"2m", 2 * time.Minute},
		{"auto", defaultWireupTimeout}, {"inf", 0},
	} {
		cfg := fromEnv(t, "WIREUP_TIMEOUT="+tc.in)
		require.NoError(t, cfg.Validate())
		assert.Equal(t, tc.want, cfg.wireupTimeout(), tc.in)
	}
	var zero Config
	assert.Equal(t, defaultWireupTimeout, zero.wireupTimeout())
	assert.ErrorIs(t, (&Config{WireupTimeout: -1}).Validate(), ucs.ErrInvalidParam)
}

// TestAlarm_ChecksConnectedEPsOnly: the alarm does not check EPs that have no connection or are closed.
func TestAlarm_ChecksConnectedEPsOnly(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	const idle, used = 100, 3
	for range idle {
		_, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
		require.NoError(t, err)
	}
	var eps []*EP
	for range used {
		ep, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
		require.NoError(t, err)
		require.NoError(t, p.finish(ep.TagSend(1, []byte{1}, nil)))
		eps = append(eps, ep)
	}
	assert.Len(t, p.a.w.lanes.links, used)
	for i, ep := range eps {
		require.NoError(t, p.finish(ep.Close(CloseFlush)))
		p.until(func() bool { return len(p.a.w.lanes.links) == used-1-i })
	}
	p.until(func() bool { return len(p.b.w.lanes.links) == 0 })
}
