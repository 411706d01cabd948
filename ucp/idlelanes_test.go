package ucp

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/wireup"
)

// epIdle is the timeout of most tests, in virtual time.
const epIdle = 10 * time.Second

// idlePair is a pair whose EPs are connected in both directions, with traffic of all classes.
func idlePair(t *testing.T, cfg Config, kinds ...faketp.Kind) (*pair, *faketp.Fabric) {
	if cfg.EPIdleTimeout == 0 {
		cfg.EPIdleTimeout = epIdle
	}
	p, f := fakePair(t, cfg, kinds...)
	p.both()
	p.check(t)
	return p, f
}

// lanesClosed reports whether both EPs have closed their lanes because they were idle.
func (p *pair) lanesClosed() bool {
	for _, x := range []*end{&p.a, &p.b} {
		if !x.ep.link.idle.closed || len(x.ep.kinds()) > 0 || !x.ep.link.conn.Quiet() {
			return false
		}
	}
	return true
}

// idleKinds are sets of transports over which lanes close.
var idleKinds = []struct {
	name  string
	kinds []faketp.Kind
}{
	{"rc", []faketp.Kind{faketp.LikeRC(), faketp.LikeUD()}},
	{"sm", []faketp.Kind{faketp.LikeSM()}},
	{"tcp", []faketp.Kind{faketp.LikeTCP()}},
	{"sm+rc", []faketp.Kind{faketp.LikeSM(), faketp.LikeRC(), faketp.LikeUD()}},
	{"two of rc", []faketp.Kind{faketp.LikeRC(), likeRC2(), faketp.LikeUD()}},
}

// TestIdleLanes_CloseAndReopen: after the timeout no transport endpoint is open. The next operation of either side
// connects.
func TestIdleLanes_CloseAndReopen(t *testing.T) {
	for _, tc := range idleKinds {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, f := idlePair(t, Config{}, tc.kinds...)
				for n := range uint64(3) {
					require.Positive(t, f.OpenEPs())
					sleepWith(epIdle-2*time.Second, &p.a, &p.b)
					require.Positive(t, f.OpenEPs(), "the timeout has not passed")
					sleepWith(epIdle, &p.a, &p.b)
					require.True(t, p.lanesClosed(), p.state())
					require.Zero(t, f.OpenEPs())
					for _, x := range []*end{&p.a, &p.b} {
						assert.Contains(t, x.ep.Explain(), "idle: lanes closed")
						assert.Contains(t, x.w.State(), "idle: lanes closed")
						assert.True(t, x.ep.Info().Idle)
						assert.Positive(t, counters(x.w)["worker.idle_closed_lanes"])
						assert.Equal(t, n, counters(x.w)["worker.reopened_eps"])
						assert.Nil(t, x.key.put)
						require.NoError(t, p.finish(x.ep.Flush()))
						require.NoError(t, x.ep.Fence())
					}
					if n%2 == 0 {
						p.check(t)
					} else {
						p.a, p.b = p.b, p.a
						p.check(t)
						p.a, p.b = p.b, p.a
					}
					assert.NotContains(t, p.a.ep.Explain(), "idle: lanes closed")
					assert.False(t, p.a.ep.Info().Idle)
					assert.Same(t, p.a.ep.lane(wireup.RMA).Put, p.a.key.put)
				}
				for _, x := range []*end{&p.a, &p.b} {
					assert.Equal(t, uint64(3), counters(x.w)["worker.reopened_eps"])
					assert.Zero(t, counters(x.w)["worker.replaced_lanes"])
					assert.Zero(t, counters(x.w)["worker.failed_eps"])
				}
			})
		})
	}
}

// TestIdleLanes_Never: by default, and with an infinite timeout, no timer runs. If only one side has the setting,
// nothing changes for its peer.
func TestIdleLanes_Never(t *testing.T) {
	testenv.SkipShort(t, "virtual time has one goroutine")
	synctest.Test(t, func(t *testing.T) {
		p, _ := fakePair(t, Config{EPIdleTimeout: config.Infinite}, faketp.LikeRC(), faketp.LikeUD())
		p.both().check(t)
		_, waits := p.a.ep.deadline()
		assert.False(t, waits)
		sleepWith(time.Minute, &p.a, &p.b)
		assert.NotEmpty(t, p.a.ep.kinds())
	})
	synctest.Test(t, func(t *testing.T) {
		p, f := fakePair(t, Config{EPIdleTimeout: epIdle}, faketp.LikeRC(), faketp.LikeUD())
		p.b.ctx.cfg.EPIdleTimeout = 0
		p.both().check(t)
		sent := f.Sent
		sleepWith(100*epIdle, &p.a, &p.b)
		assert.NotEmpty(t, p.a.ep.kinds())
		assert.Less(t, f.Sent-sent, 2*12, "the pauses between its proposals grow")
		p.check(t)
		assert.Zero(t, counters(p.a.w)["worker.idle_closed_lanes"]+counters(p.b.w)["worker.idle_closed_lanes"])
	})
}

// TestIdleLanes_OneBusy: one side puts, which the other one does not see, or sends messages. The lanes stay open.
func TestIdleLanes_OneBusy(t *testing.T) {
	testenv.SkipShort(t, "virtual time has one goroutine")
	for _, by := range []string{"put", "message", "credit"} {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := idlePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
				for n := range 40 {
					switch by {
					case "put":
						require.NoError(t, p.finish(p.a.ep.Put(pattern(8, n), p.a.key.Addr(), p.a.key, nil)))
						require.NoError(t, p.flush())
						requireBytes(t, pattern(8, n), p.b.mem.Bytes()[:8])
					case "message":
						buf := make([]byte, 8)
						r, err := p.b.w.TagRecv(buf, 5, exact, nil, nil)
						require.NoError(t, err)
						require.NoError(t, p.finish(p.a.ep.TagSend(5, pattern(8, n), nil)))
						require.NoError(t, p.finish(r, nil))
						requireBytes(t, pattern(8, n), buf)
					default: // an unreceived message
						if n == 0 {
							require.NoError(t, p.finish(p.a.ep.TagSend(5, pattern(8, n), nil)))
						}
					}
					sleepWith(epIdle/4, &p.a, &p.b)
					require.NotEmpty(t, p.a.ep.kinds())
					require.NotEmpty(t, p.b.ep.kinds())
				}
				if by == "credit" {
					require.NoError(t, p.finish(p.b.w.TagRecv(make([]byte, 8), 5, exact, nil, nil)))
				}
				sleepWith(70*epIdle, &p.a, &p.b) // the idle side proposes rarely now
				p.check(t)
				sleepWith(2*epIdle, &p.a, &p.b)
				require.True(t, p.lanesClosed(), p.state())
			})
		})
	}
}

// TestIdleLanes_Receives: a posted receive, also of a stream, does not keep the lanes open.
func TestIdleLanes_Receives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := idlePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
		tagged, stream, n := make([]byte, 100), make([]byte, 100), 0
		r1, err := p.b.w.TagRecv(tagged, 5, exact, nil, nil)
		require.NoError(t, err)
		r2, err := p.b.ep.StreamRecv(stream, true, &n, nil)
		require.NoError(t, err)
		sleepWith(2*epIdle, &p.a, &p.b)
		require.True(t, p.lanesClosed(), p.state())
		require.NoError(t, p.finish(p.a.ep.TagSend(5, pattern(100, 1), nil)))
		require.NoError(t, p.finish(p.a.ep.StreamSend(pattern(100, 2), nil)))
		require.NoError(t, p.finish(r1, nil))
		require.NoError(t, p.finish(r2, nil))
		requireBytes(t, pattern(100, 1), tagged)
		requireBytes(t, pattern(100, 2), stream)
	})
}

// TestIdleLanes_Passive: an EP without a user at the peer closes its lanes too, if the peer could connect.
func TestIdleLanes_Passive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := fakePair(t, Config{EPIdleTimeout: epIdle}, faketp.LikeRC(), faketp.LikeUD())
		p.connect().warm()
		sleepWith(2*epIdle, &p.a, &p.b)
		require.Zero(t, f.OpenEPs(), p.state())
		p.warm()
		p.b.dial(t, &p.a)
		p.check(t)
	})
}

// TestIdleLanes_OneSided: the peer has no lane of its own for puts over a transport that connects to an iface. The lane
// closes again and again, with a handshake or before the first one.
func TestIdleLanes_OneSided(t *testing.T) {
	for _, both := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p, f := fakePair(t, Config{EPIdleTimeout: epIdle}, faketp.LikeSM())
			p.both()
			if both {
				p.check(t)
			}
			for n := range 5 {
				require.NoError(t, p.finish(p.a.ep.Put(pattern(8, n), p.a.key.Addr(), p.a.key, nil)))
				require.NoError(t, p.flush())
				requireBytes(t, pattern(8, n), p.b.mem.Bytes()[:8])
				if both {
					require.NoError(t, p.finish(p.a.ep.TagSend(5, pattern(8, n), nil)))
					require.NoError(t, p.finish(p.b.w.TagRecv(make([]byte, 8), 5, exact, nil, nil)))
				}
				require.Positive(t, f.OpenEPs())
				sleepWith(4*epIdle, &p.a, &p.b)
				require.Zero(t, f.OpenEPs(), p.state())
			}
			p.check(t)
		})
	}
}

// TestIdleLanes_PeerDies: an EP without lanes detects that its peer has died at the next operation, or when it
// connects to check the peer.
func TestIdleLanes_PeerDies(t *testing.T) {
	for _, operates := range []bool{true, false} {
		for _, tc := range idleKinds {
			t.Run(tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, f := idlePair(t, Config{}, tc.kinds...)
					var reason error
					p.a.ep.onError = func(_ *EP, err error) { reason = err }
					sleepWith(2*epIdle, &p.a, &p.b)
					require.True(t, p.lanesClosed())
					for _, i := range f.Ifaces[len(tc.kinds):] { // b's
						i.Kill()
					}
					if operates {
						r, err := p.a.ep.TagSend(5, pattern(8, 1), nil)
						require.NoError(t, err)
						sleepWith(time.Second, &p.a)
						r.Release() // it has failed, or was lost
					} else {
						sleepWith(epIdle, &p.a)
						require.NoError(t, p.a.ep.Err())
						sleepWith(idleCheck*epIdle, &p.a)
					}
					require.Error(t, p.a.ep.Err())
					require.ErrorIs(t, reason, ucs.ErrConnReset)
				})
			})
		}
	}
}

// TestIdleLanes_Check: a check of the peer opens the lanes for a while. Without keepalives there is none.
func TestIdleLanes_Check(t *testing.T) {
	testenv.SkipShort(t, "virtual time has one goroutine")
	for _, every := range []time.Duration{0, config.Infinite} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := idlePair(t, Config{KeepaliveInterval: every}, faketp.LikeRC(), faketp.LikeUD())
			sleepWith(10*idleCheck*epIdle, &p.a, &p.b)
			n := counters(p.a.w)["worker.reopened_eps"]
			if every == config.Infinite {
				assert.Zero(t, n)
				return
			}
			assert.InDelta(t, 9, n, 1)
			assert.InDelta(t, 9, counters(p.b.w)["worker.reopened_eps"], 1, "one check serves both sides")
			p.check(t)
		})
	}
}

// TestIdleLanes_Close: an EP without lanes closes gracefully at the peer, in each close mode.
func TestIdleLanes_Close(t *testing.T) {
	for _, mode := range []CloseMode{CloseFlush, CloseForce} {
		for _, tc := range idleKinds {
			t.Run(tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, f := idlePair(t, Config{}, tc.kinds...)
					sleepWith(2*epIdle, &p.a, &p.b)
					require.True(t, p.lanesClosed())
					require.NoError(t, p.finish(p.a.ep.Close(mode)))
					p.until(func() bool { return p.b.ep.Err() != nil })
					require.ErrorIs(t, p.b.ep.Err(), ucs.ErrPeerClosed)
					require.NoError(t, p.finish(p.b.ep.Close(mode)))
					p.idle()
					require.Zero(t, f.OpenEPs())
				})
			})
		}
	}
}

// TestIdleLanes_NoCarrier: if IDLE cannot be sent, the lanes stay open.
func TestIdleLanes_NoCarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := idlePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
		f.FailNext("new ep fud", ucs.ErrUnreachable)
		sleepWith(2*epIdle, &p.a, &p.b)
		assert.Empty(t, f.Failures, "IDLE was not sent")
		require.NoError(t, p.a.ep.Err())
		require.NoError(t, p.b.ep.Err())
		p.check(t)
		sleepWith(2*epIdle, &p.a, &p.b)
		require.True(t, p.lanesClosed(), p.state())
	})
}

// TestIdleLanes_TupleQ: EPs with tuple queues keep their lanes, because a tuple queue belongs to a lane.
func TestIdleLanes_TupleQ(t *testing.T) {
	assert.Zero(t, (&Config{EPIdleTimeout: time.Second, TagProto: tagProtoTupleq}).idleTimeout())
	assert.Zero(t, (&Config{EPIdleTimeout: config.Infinite}).idleTimeout())
	assert.Zero(t, (&Config{}).idleTimeout())
	assert.Equal(t, time.Second, (&Config{EPIdleTimeout: time.Second, TagProto: tagProtoAuto}).idleTimeout())
}

// inBubble returns t for rapid in a bubble of virtual time, where rapid must not read the deadline of the test.
func inBubble(t *testing.T) rapid.TB { return struct{ rapid.TB }{t} }

// idleStorm starts operations of both sides at random times, and makes progress on random sides.
func idleStorm(rt *rapid.T, p *pair, both []*moveTraffic, timeout time.Duration) {
	ends := []*end{&p.a, &p.b}
	for range rapid.IntRange(1, 30).Draw(rt, "steps") {
		switch rapid.IntRange(0, 5).Draw(rt, "what") {
		case 0, 1:
			both[rapid.IntRange(0, 1).Draw(rt, "side")].step(rt, rapid.IntRange(0, 6).Draw(rt, "class"))
		case 2:
			sleepWith(timeout/2, ends...)
		case 3: // with progress of one side, or of none
			n := rapid.IntRange(0, 2).Draw(rt, "who")
			sleepWith(timeout/2, [][]*end{nil, ends[:1], ends[1:]}[n]...)
		default:
			for range rapid.IntRange(0, 40).Draw(rt, "progress") {
				ends[rapid.IntRange(0, 1).Draw(rt, "of")].w.Progress()
			}
		}
	}
}

// TestIdleLanes_KeepsOrder: operations start at any time, while the lanes close or are closed. None is lost or executed
// twice, and messages and operations behind fences keep their order.
func TestIdleLanes_KeepsOrder(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	for _, tc := range idleKinds {
		if tc.name == "tcp" { // it has no atomics of its own
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closed := uint64(0)
				rapid.Check(inBubble(t), func(rt *rapid.T) {
					const timeout = time.Second
					p, _ := idlePair(t, Config{EPIdleTimeout: timeout}, tc.kinds...)
					both := []*moveTraffic{{x: &p.a, to: &p.b}, {x: &p.b, to: &p.a}}
					clear(p.a.mem.Bytes())
					clear(p.b.mem.Bytes())
					if rapid.Bool().Draw(rt, "begins idle") {
						sleepWith(2*timeout, &p.a, &p.b)
						require.True(rt, p.lanesClosed(), p.state())
					}
					idleStorm(rt, p, both, timeout)
					for _, m := range both {
						m.end(rt, p)
					}
					require.NoError(rt, p.a.ep.Err())
					require.NoError(rt, p.b.ep.Err())
					for n := 0; !p.lanesClosed(); n++ {
						require.Less(rt, n, 200, p.state())
						sleepWith(timeout/2, &p.a, &p.b)
					}
					closed += counters(p.a.w)["worker.idle_closed_lanes"]
					for _, x := range []*end{&p.a, &p.b} {
						require.NoError(rt, p.finish(x.ep.Close(CloseForce)))
					}
				})
				assert.Positive(t, closed)
			})
		})
	}
}

// TestIdleLanes_CloseAnyTime: an EP closes at any time of the handshake. With CloseFlush everything that was sent
// before arrives.
func TestIdleLanes_CloseAnyTime(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(inBubble(t), func(rt *rapid.T) {
			const timeout = time.Second
			p, _ := idlePair(t, Config{EPIdleTimeout: timeout}, faketp.LikeRC(), faketp.LikeUD())
			for range rapid.IntRange(0, 4).Draw(rt, "halves") {
				sleepWith(timeout/2, &p.a, &p.b)
			}
			time.Sleep(timeout / 2)
			progress := func() {
				for range rapid.IntRange(0, 40).Draw(rt, "progress") {
					[]*end{&p.a, &p.b}[rapid.IntRange(0, 1).Draw(rt, "of")].w.Progress()
				}
			}
			progress()
			x, to := &p.a, &p.b
			if rapid.Bool().Draw(rt, "b closes") {
				x, to = to, x
			}
			var reqs []*Request
			bufs := make([][]byte, rapid.IntRange(0, 4).Draw(rt, "messages"))
			for i := range bufs {
				bufs[i] = make([]byte, 100)
				r, err := to.w.TagRecv(bufs[i], 3, exact, nil, nil)
				require.NoError(rt, err)
				reqs = append(reqs, r)
				s, err := x.ep.TagSend(3, pattern(100, i), nil)
				require.NoError(rt, err)
				if s != nil {
					reqs = append(reqs, s)
				}
				progress()
			}
			flush := rapid.Bool().Draw(rt, "flush")
			if flush {
				require.NoError(rt, p.finish(x.ep.Close(CloseFlush)))
				p.until(func() bool { return !slices.ContainsFunc(reqs, func(r *Request) bool { return !r.Done() }) })
				for i := range bufs {
					require.Equal(rt, pattern(100, i), bufs[i])
				}
			} else {
				require.NoError(rt, p.finish(x.ep.Close(CloseForce)))
			}
			for _, r := range reqs {
				r.Cancel()
				p.until(r.Done)
				r.Release()
			}
			p.until(func() bool { return to.ep.Err() != nil })
			require.ErrorIs(rt, to.ep.Err(), ucs.ErrPeerClosed)
			require.NoError(rt, p.finish(to.ep.Close(CloseForce)))
		})
	})
}
