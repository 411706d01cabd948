package ucp_test

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
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/wireup"
)

// epIdle is the timeout of most tests, in virtual time.
const epIdle = 10 * time.Second

// idlePair is a pair whose EPs are connected in both directions, with traffic of all classes.
func idlePair(t *testing.T, cfg ucp.Config, kinds ...faketp.Kind) (*ucppair.Pair, *faketp.Fabric) {
	if cfg.EPIdleTimeout == 0 {
		cfg.EPIdleTimeout = epIdle
	}
	p, f := ucppair.Fake(t, cfg, kinds...)
	p.Both()
	checkTraffic(t, p)
	return p, f
}

// lanesClosed reports whether both EPs have closed their lanes because they were idle.
func lanesClosed(p *ucppair.Pair) bool {
	for _, x := range []*ucppair.End{&p.A, &p.B} {
		if !x.EP.IdleClosed() || len(kindsOf(x.EP)) > 0 || !x.EP.Handshake().Quiet() {
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
				p, f := idlePair(t, ucp.Config{}, tc.kinds...)
				for n := range uint64(3) {
					require.Positive(t, f.OpenEPs())
					sleepWith(epIdle-2*time.Second, &p.A, &p.B)
					require.Positive(t, f.OpenEPs(), "the timeout has not passed")
					sleepWith(epIdle, &p.A, &p.B)
					require.True(t, lanesClosed(p), p.State())
					require.Zero(t, f.OpenEPs())
					for _, x := range []*ucppair.End{&p.A, &p.B} {
						assert.Contains(t, x.EP.Explain(), "idle: lanes closed")
						assert.Contains(t, x.W.State(), "idle: lanes closed")
						assert.True(t, x.EP.Info().Idle)
						assert.Positive(t, counters(x.W)["worker.idle_closed_lanes"])
						assert.Equal(t, n, counters(x.W)["worker.reopened_eps"])
						assert.Nil(t, x.Key.Putter())
						require.NoError(t, p.Finish(x.EP.Flush()))
						require.NoError(t, x.EP.Fence())
					}
					if n%2 == 0 {
						checkTraffic(t, p)
					} else {
						p.A, p.B = p.B, p.A
						checkTraffic(t, p)
						p.A, p.B = p.B, p.A
					}
					assert.NotContains(t, p.A.EP.Explain(), "idle: lanes closed")
					assert.False(t, p.A.EP.Info().Idle)
					assert.Same(t, p.A.EP.Lane(wireup.RMA).Put, p.A.Key.Putter())
				}
				for _, x := range []*ucppair.End{&p.A, &p.B} {
					assert.Equal(t, uint64(3), counters(x.W)["worker.reopened_eps"])
					assert.Zero(t, counters(x.W)["worker.replaced_lanes"])
					assert.Zero(t, counters(x.W)["worker.failed_eps"])
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
		p, _ := ucppair.Fake(t, ucp.Config{EPIdleTimeout: config.Infinite}, faketp.LikeRC(), faketp.LikeUD())
		checkTraffic(t, p.Both())
		_, waits := p.A.EP.Deadline()
		assert.False(t, waits)
		sleepWith(time.Minute, &p.A, &p.B)
		assert.NotEmpty(t, kindsOf(p.A.EP))
	})
	synctest.Test(t, func(t *testing.T) {
		p, f := ucppair.Fake(t, ucp.Config{EPIdleTimeout: epIdle}, faketp.LikeRC(), faketp.LikeUD())
		p.B.Ctx.Configuration().EPIdleTimeout = 0
		checkTraffic(t, p.Both())
		sent := f.Sent
		sleepWith(100*epIdle, &p.A, &p.B)
		assert.NotEmpty(t, kindsOf(p.A.EP))
		assert.Less(t, f.Sent-sent, 2*12, "the pauses between its proposals grow")
		checkTraffic(t, p)
		assert.Zero(t, counters(p.A.W)["worker.idle_closed_lanes"]+counters(p.B.W)["worker.idle_closed_lanes"])
	})
}

// TestIdleLanes_OneBusy: one side puts, which the other one does not see, or sends messages. The lanes stay open.
func TestIdleLanes_OneBusy(t *testing.T) {
	testenv.SkipShort(t, "virtual time has one goroutine")
	for _, by := range []string{"put", "message", "credit"} {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := idlePair(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
				for n := range 40 {
					switch by {
					case "put":
						require.NoError(t, p.Finish(p.A.EP.Put(testenv.Pattern(8, n), p.A.Key.Addr(), p.A.Key, nil)))
						require.NoError(t, p.Flush())
						testenv.RequireBytes(t, testenv.Pattern(8, n), p.B.Mem.Bytes()[:8])
					case "message":
						buf := make([]byte, 8)
						r, err := p.B.W.TagRecv(buf, 5, exact, nil, nil)
						require.NoError(t, err)
						require.NoError(t, p.Finish(p.A.EP.TagSend(5, testenv.Pattern(8, n), nil)))
						require.NoError(t, p.Finish(r, nil))
						testenv.RequireBytes(t, testenv.Pattern(8, n), buf)
					default: // an unreceived message
						if n == 0 {
							require.NoError(t, p.Finish(p.A.EP.TagSend(5, testenv.Pattern(8, n), nil)))
						}
					}
					sleepWith(epIdle/4, &p.A, &p.B)
					require.NotEmpty(t, kindsOf(p.A.EP))
					require.NotEmpty(t, kindsOf(p.B.EP))
				}
				if by == "credit" {
					require.NoError(t, p.Finish(p.B.W.TagRecv(make([]byte, 8), 5, exact, nil, nil)))
				}
				sleepWith(70*epIdle, &p.A, &p.B) // the idle side proposes rarely now
				checkTraffic(t, p)
				sleepWith(2*epIdle, &p.A, &p.B)
				require.True(t, lanesClosed(p), p.State())
			})
		})
	}
}

// TestIdleLanes_Receives: a posted receive, also of a stream, does not keep the lanes open.
func TestIdleLanes_Receives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := idlePair(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
		tagged, stream, n := make([]byte, 100), make([]byte, 100), 0
		r1, err := p.B.W.TagRecv(tagged, 5, exact, nil, nil)
		require.NoError(t, err)
		r2, err := p.B.EP.StreamRecv(stream, true, &n, nil)
		require.NoError(t, err)
		sleepWith(2*epIdle, &p.A, &p.B)
		require.True(t, lanesClosed(p), p.State())
		require.NoError(t, p.Finish(p.A.EP.TagSend(5, testenv.Pattern(100, 1), nil)))
		require.NoError(t, p.Finish(p.A.EP.StreamSend(testenv.Pattern(100, 2), nil)))
		require.NoError(t, p.Finish(r1, nil))
		require.NoError(t, p.Finish(r2, nil))
		testenv.RequireBytes(t, testenv.Pattern(100, 1), tagged)
		testenv.RequireBytes(t, testenv.Pattern(100, 2), stream)
	})
}

// TestIdleLanes_Passive: an EP without a user at the peer closes its lanes too, if the peer could connect.
func TestIdleLanes_Passive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := ucppair.Fake(t, ucp.Config{EPIdleTimeout: epIdle}, faketp.LikeRC(), faketp.LikeUD())
		p.Connect().Warm()
		sleepWith(2*epIdle, &p.A, &p.B)
		require.Zero(t, f.OpenEPs(), p.State())
		p.Warm()
		p.B.Dial(t, &p.A)
		checkTraffic(t, p)
	})
}

// TestIdleLanes_OneSided: the peer has no lane of its own for puts over a transport that connects to an iface. The lane
// closes again and again, with a handshake or before the first one.
func TestIdleLanes_OneSided(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	for _, both := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p, f := ucppair.Fake(t, ucp.Config{EPIdleTimeout: epIdle}, faketp.LikeSM())
			p.Both()
			if both {
				checkTraffic(t, p)
			}
			for n := range 5 {
				require.NoError(t, p.Finish(p.A.EP.Put(testenv.Pattern(8, n), p.A.Key.Addr(), p.A.Key, nil)))
				require.NoError(t, p.Flush())
				testenv.RequireBytes(t, testenv.Pattern(8, n), p.B.Mem.Bytes()[:8])
				if both {
					require.NoError(t, p.Finish(p.A.EP.TagSend(5, testenv.Pattern(8, n), nil)))
					require.NoError(t, p.Finish(p.B.W.TagRecv(make([]byte, 8), 5, exact, nil, nil)))
				}
				require.Positive(t, f.OpenEPs())
				sleepWith(4*epIdle, &p.A, &p.B)
				require.Zero(t, f.OpenEPs(), p.State())
			}
			checkTraffic(t, p)
		})
	}
}

// TestIdleLanes_PeerDies: an EP without lanes detects that its peer has died at the next operation, or when it
// connects to check the peer.
func TestIdleLanes_PeerDies(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	for _, operates := range []bool{true, false} {
		for _, tc := range idleKinds {
			t.Run(tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, f := idlePair(t, ucp.Config{}, tc.kinds...)
					var reason error
					p.A.EP.SetOnError(func(_ *ucp.EP, err error) { reason = err })
					sleepWith(2*epIdle, &p.A, &p.B)
					require.True(t, lanesClosed(p))
					for _, i := range f.Ifaces[len(tc.kinds):] { // b's
						i.Kill()
					}
					if operates {
						r, err := p.A.EP.TagSend(5, testenv.Pattern(8, 1), nil)
						require.NoError(t, err)
						sleepWith(time.Second, &p.A)
						r.Release() // it has failed, or was lost
					} else {
						sleepWith(epIdle, &p.A)
						require.NoError(t, p.A.EP.Err())
						sleepWith(ucp.IdleCheck*epIdle, &p.A)
					}
					require.Error(t, p.A.EP.Err())
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
			p, _ := idlePair(t, ucp.Config{KeepaliveInterval: every}, faketp.LikeRC(), faketp.LikeUD())
			sleepWith(10*ucp.IdleCheck*epIdle, &p.A, &p.B)
			n := counters(p.A.W)["worker.reopened_eps"]
			if every == config.Infinite {
				assert.Zero(t, n)
				return
			}
			assert.InDelta(t, 9, n, 1)
			assert.InDelta(t, 9, counters(p.B.W)["worker.reopened_eps"], 1, "one check serves both sides")
			checkTraffic(t, p)
		})
	}
}

// TestIdleLanes_Close: an EP without lanes closes gracefully at the peer, in each close mode.
func TestIdleLanes_Close(t *testing.T) {
	for _, mode := range []ucp.CloseMode{ucp.CloseFlush, ucp.CloseForce} {
		for _, tc := range idleKinds {
			t.Run(tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, f := idlePair(t, ucp.Config{}, tc.kinds...)
					sleepWith(2*epIdle, &p.A, &p.B)
					require.True(t, lanesClosed(p))
					require.NoError(t, p.Finish(p.A.EP.Close(mode)))
					p.Until(func() bool { return p.B.EP.Err() != nil })
					require.ErrorIs(t, p.B.EP.Err(), ucs.ErrPeerClosed)
					require.NoError(t, p.Finish(p.B.EP.Close(mode)))
					idle(p)
					require.Zero(t, f.OpenEPs())
				})
			})
		}
	}
}

// TestIdleLanes_NoCarrier: if IDLE cannot be sent, the lanes stay open.
func TestIdleLanes_NoCarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := idlePair(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
		f.FailNext("new ep fud", ucs.ErrUnreachable)
		sleepWith(2*epIdle, &p.A, &p.B)
		assert.Empty(t, f.Failures, "IDLE was not sent")
		require.NoError(t, p.A.EP.Err())
		require.NoError(t, p.B.EP.Err())
		checkTraffic(t, p)
		sleepWith(2*epIdle, &p.A, &p.B)
		require.True(t, lanesClosed(p), p.State())
	})
}

// inBubble returns t for rapid in a bubble of virtual time, where rapid must not read the deadline of the test.
func inBubble(t *testing.T) rapid.TB { return struct{ rapid.TB }{t} }

// idleStorm starts operations of both sides at random times, and makes progress on random sides.
func idleStorm(rt *rapid.T, p *ucppair.Pair, both []*moveTraffic, timeout time.Duration) {
	ends := []*ucppair.End{&p.A, &p.B}
	for range rapid.IntRange(1, 30).Draw(rt, "steps") {
		switch rapid.IntRange(0, 5).Draw(rt, "what") {
		case 0, 1:
			both[rapid.IntRange(0, 1).Draw(rt, "side")].step(rt, rapid.IntRange(0, 6).Draw(rt, "class"))
		case 2:
			sleepWith(timeout/2, ends...)
		case 3: // with progress of one side, or of none
			n := rapid.IntRange(0, 2).Draw(rt, "who")
			sleepWith(timeout/2, [][]*ucppair.End{nil, ends[:1], ends[1:]}[n]...)
		default:
			for range rapid.IntRange(0, 40).Draw(rt, "progress") {
				ends[rapid.IntRange(0, 1).Draw(rt, "of")].W.Progress()
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
					p, _ := idlePair(t, ucp.Config{EPIdleTimeout: timeout}, tc.kinds...)
					both := []*moveTraffic{{x: &p.A, to: &p.B}, {x: &p.B, to: &p.A}}
					clear(p.A.Mem.Bytes())
					clear(p.B.Mem.Bytes())
					if rapid.Bool().Draw(rt, "begins idle") {
						sleepWith(2*timeout, &p.A, &p.B)
						require.True(rt, lanesClosed(p), p.State())
					}
					idleStorm(rt, p, both, timeout)
					for _, m := range both {
						m.end(rt, p)
					}
					require.NoError(rt, p.A.EP.Err())
					require.NoError(rt, p.B.EP.Err())
					for n := 0; !lanesClosed(p); n++ {
						require.Less(rt, n, 200, p.State())
						sleepWith(timeout/2, &p.A, &p.B)
					}
					closed += counters(p.A.W)["worker.idle_closed_lanes"]
					for _, x := range []*ucppair.End{&p.A, &p.B} {
						require.NoError(rt, p.Finish(x.EP.Close(ucp.CloseForce)))
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
			p, _ := idlePair(t, ucp.Config{EPIdleTimeout: timeout}, faketp.LikeRC(), faketp.LikeUD())
			for range rapid.IntRange(0, 4).Draw(rt, "halves") {
				sleepWith(timeout/2, &p.A, &p.B)
			}
			time.Sleep(timeout / 2)
			progress := func() {
				for range rapid.IntRange(0, 40).Draw(rt, "progress") {
					[]*ucppair.End{&p.A, &p.B}[rapid.IntRange(0, 1).Draw(rt, "of")].W.Progress()
				}
			}
			progress()
			x, to := &p.A, &p.B
			if rapid.Bool().Draw(rt, "b closes") {
				x, to = to, x
			}
			var reqs []*ucp.Request
			bufs := make([][]byte, rapid.IntRange(0, 4).Draw(rt, "messages"))
			for i := range bufs {
				bufs[i] = make([]byte, 100)
				r, err := to.W.TagRecv(bufs[i], 3, exact, nil, nil)
				require.NoError(rt, err)
				reqs = append(reqs, r)
				s, err := x.EP.TagSend(3, testenv.Pattern(100, i), nil)
				require.NoError(rt, err)
				if s != nil {
					reqs = append(reqs, s)
				}
				progress()
			}
			flush := rapid.Bool().Draw(rt, "flush")
			if flush {
				require.NoError(rt, p.Finish(x.EP.Close(ucp.CloseFlush)))
				p.Until(func() bool { return !slices.ContainsFunc(reqs, func(r *ucp.Request) bool { return !r.Done() }) })
				for i := range bufs {
					require.Equal(rt, testenv.Pattern(100, i), bufs[i])
				}
			} else {
				require.NoError(rt, p.Finish(x.EP.Close(ucp.CloseForce)))
			}
			for _, r := range reqs {
				r.Cancel()
				p.Until(r.Done)
				r.Release()
			}
			p.Until(func() bool { return to.EP.Err() != nil })
			require.ErrorIs(rt, to.EP.Err(), ucs.ErrPeerClosed)
			require.NoError(rt, p.Finish(to.EP.Close(ucp.CloseForce)))
		})
	})
}
