package ucp

import (
	"encoding/binary"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// laneRetry is the interval of most tests.
const laneRetry = 10 * time.Second

// failedOver is a pair whose EPs use frc2 because frc has failed. b has an EP over the same connection.
func failedOver(t testing.TB, retry time.Duration) (*pair, *faketp.Fabric) {
	return failedOverBeside(t, retry, faketp.LikeUD())
}

// failedOverBeside is failedOver with a transport of datagrams. Messages use it if it has the lowest latency.
func failedOverBeside(t testing.TB, retry time.Duration, datagrams faketp.Kind) (*pair, *faketp.Fabric) {
	p, f := fakePair(t, Config{LaneRetryInterval: retry}, faketp.LikeRC(), likeRC2(), datagrams)
	p.connect().warm()
	require.Equal(t, "frc", p.a.ep.lane(wireup.RMA).Iface.kind())
	breakLane(p.a.ep, wireup.RMA, ucs.StatusIOError)
	require.ErrorIs(t, p.flush(), ucs.ErrIO)
	p.b.dial(t, &p.a)
	p.until(func() bool { // or the first lane is back already
		x, n := p.a.ep.lane(wireup.RMA), counters(p.a.w)
		return n["worker.replaced_lanes"] > 0 && (x != nil && x.Iface.kind() == "frc2" || n["worker.returned_lanes"] > 0)
	})
	_ = p.finish(p.b.ep.Flush()) // detects the failed lane, if b has one
	return p, f
}

// quiet reports whether neither side has a handshake in progress.
func (p *pair) quiet() bool { return p.a.ep.link.conn.Quiet() && p.b.ep.link.conn.Quiet() }

// kinds are the transports of the open lanes of an EP.
func (e *EP) kinds() (all []string) {
	for i := range e.link.lanes.All {
		if x := &e.link.lanes.All[i]; x.EP != nil {
			all = append(all, x.Iface.kind())
		}
	}
	slices.Sort(all)
	return all
}

// backOn reports whether both sides have one lane each, over the given transport, and no other lane.
func (p *pair) backOn(kind string) bool {
	return p.quiet() && slices.Equal(p.a.ep.kinds(), []string{kind}) && slices.Equal(p.b.ep.kinds(), []string{kind})
}

// away reports whether both sides have lanes, and none over frc.
func (p *pair) away() bool {
	for _, x := range []*end{&p.a, &p.b} {
		if all := x.ep.kinds(); slices.Contains(all, "frc") || !slices.Contains(all, "frc2") {
			return false
		}
	}
	return p.quiet()
}

// check uses all classes of operations in both directions.
func (p *pair) check(t *testing.T) {
	t.Helper()
	for seed, x := range []*end{&p.a, &p.b} {
		to := []*end{&p.b, &p.a}[seed]
		data := pattern(1000, seed)
		require.NoError(t, p.finish(x.ep.Put(data, x.key.Addr(), x.key, nil)))
		require.NoError(t, p.finish(x.ep.Flush()))
		requireBytes(t, data, to.mem.Bytes()[:1000])
		var old uint64
		require.NoError(t, p.finish(x.ep.AtomicFetch(uct.AtomicAdd, 8, 1, &old, x.key.Addr()+2048, x.key)))
		buf := make([]byte, 1000)
		r, err := to.w.TagRecv(buf, 5, exact, nil, nil)
		require.NoError(t, err)
		require.NoError(t, p.finish(x.ep.TagSend(5, data, nil)))
		require.NoError(t, p.finish(r, nil))
		requireBytes(t, data, buf)
	}
}

// TestFailback: after the interval both sides use the better lane again, and the other one closes. Keys are bound to
// the lane.
func TestFailback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := failedOver(t, laneRetry)
		p.check(t)
		assert.Contains(t, p.a.ep.Explain(), "failed transport: frc fake0:1: ")
		assert.Contains(t, p.a.ep.Explain(), "retry: frc fake0:1, in ")
		require.Len(t, p.a.ep.Info().Retries, 1)
		assert.Empty(t, p.b.ep.Info().Retries, "the side that has proposed the lane tries it")

		sleepWith(laneRetry/2, &p.a, &p.b)
		require.True(t, p.away(), "the interval has not passed")
		sleepWith(laneRetry/2+time.Second, &p.a, &p.b)
		p.until(func() bool { return p.backOn("frc") })
		for _, x := range []*end{&p.a, &p.b} {
			assert.Equal(t, uint64(1), counters(x.w)["worker.lane_retries"])
			assert.Equal(t, uint64(1), counters(x.w)["worker.returned_lanes"])
			assert.NotContains(t, x.ep.Explain(), "given up")
			assert.NotContains(t, x.ep.Explain(), "tried again")
		}
		p.check(t)
		assert.Same(t, p.a.ep.lane(wireup.RMA).Put, p.a.key.put)
		_, waits := p.a.ep.deadline()
		assert.False(t, waits, "no timer runs any more")
	})
}

// TestFailback_DeadPath: retries of a path that is still dead have no effect on operations, and their pauses grow.
func TestFailback_DeadPath(t *testing.T) {
	testenv.SkipShort(t, "virtual time has one goroutine")
	synctest.Test(t, func(t *testing.T) {
		p, f := failedOver(t, laneRetry)
		retries := func() uint64 { return counters(p.a.w)["worker.lane_retries"] }
		var at []time.Duration
		start := time.Now()
		for n := range uint64(5) {
			f.FailNext("connect frc", ucs.ErrUnreachable)
			for retries() == n {
				sleepWith(time.Second, &p.a, &p.b)
			}
			at = append(at, time.Since(start).Round(laneRetry))
			p.until(p.away)
			p.check(t)
		}
		assert.IsIncreasing(t, at)
		assert.GreaterOrEqual(t, at[4]-at[3], 8*laneRetry)
		assert.Len(t, p.a.ep.link.tried, 1, "the list of failures does not grow")
		for counters(p.a.w)["worker.returned_lanes"] == 0 {
			sleepWith(time.Second, &p.a, &p.b)
		}
		p.until(func() bool { return p.backOn("frc") })
		p.check(t)
	})
}

// TestFailback_TrialFails: a lane on trial that breaks, also with an error that means a dead peer, has no effect on
// anything else.
func TestFailback_TrialFails(t *testing.T) {
	testenv.SkipShort(t, "virtual time has one goroutine")
	for _, st := range []ucs.Status{ucs.StatusTimedOut, ucs.StatusConnReset, ucs.StatusPeerClosed} {
		for _, at := range []string{"here", "at the peer"} {
			t.Run(st.String()+" "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { failTrial(t, at == "here", st) })
			})
		}
	}
}

// failTrial breaks a lane on trial over which no message has arrived.
func failTrial(t *testing.T, here bool, st ucs.Status) {
	p, f := failedOver(t, laneRetry)
	p.until(p.away)
	freeze := func(frozen bool) {
		for _, i := range f.Ifaces {
			i.Frozen = frozen && i.Kind.Name == "frc"
		}
	}
	freeze(true)
	sleepWith(laneRetry+time.Second, &p.a, &p.b)
	x := &p.b
	if here {
		x = &p.a
	}
	trial := slices.IndexFunc(x.ep.laneInfos(), func(i LaneInfo) bool { return i.Trial })
	require.GreaterOrEqual(t, trial, 0)
	x.ep.link.lanes.All[x.ep.laneInfos()[trial].Number].EP.(*faketp.EP).Fail(st)
	p.check(t)
	p.until(p.away)
	freeze(false)
	sleepWith(3*laneRetry, &p.a, &p.b)
	p.until(func() bool { return p.backOn("frc") })
	p.check(t)
	require.NoError(t, p.a.ep.Err())
	require.NoError(t, p.b.ep.Err())
}

// TestFailback_Never: by default, and with an infinite interval, no timer runs, and no lane is retried.
func TestFailback_Never(t *testing.T) {
	for _, interval := range []time.Duration{0, config.Infinite} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := failedOver(t, interval)
			_, waits := p.a.ep.deadline()
			assert.False(t, waits)
			sleepWith(time.Minute, &p.a, &p.b)
			assert.True(t, p.away())
			assert.Zero(t, counters(p.a.w)["worker.lane_retries"])
		})
	}
}

// moveTraffic is the traffic of one side.
type moveTraffic struct {
	x, to *end
	sends []*Request
	recvs []*Request
	bufs  [][]byte
	puts  int
	adds  int
	bytes []byte // of the stream
	olds  []*uint64
}

// moveCounter is the offset of the word of atomics.
const moveCounter = 1 << 10

// step starts one operation of a class.
func (m *moveTraffic) step(t require.TestingT, class int) {
	n := len(m.bufs)
	keep := func(r *Request, err error) {
		require.NoError(t, err)
		if r != nil {
			m.sends = append(m.sends, r)
		}
	}
	size := []int{16, 1500, tlsets.RndvThresh + 5000}[min(class, 2)]
	switch class {
	case 0, 1, 2:
		buf := make([]byte, size)
		r, err := m.to.w.TagRecv(buf, 9, exact, nil, nil)
		require.NoError(t, err)
		if r != nil {
			m.recvs = append(m.recvs, r)
		}
		m.bufs = append(m.bufs, buf)
		data := pattern(size, n)
		binary.LittleEndian.PutUint64(data, uint64(n))
		keep(m.x.ep.TagSend(9, data, nil))
	case 3: // a number behind a fence; earlier ones must not overwrite it
		m.puts++
		data := make([]byte, 8)
		binary.LittleEndian.PutUint64(data, uint64(m.puts))
		require.NoError(t, m.x.ep.Fence())
		keep(m.x.ep.Put(data, m.x.key.Addr(), m.x.key, nil))
	case 4:
		m.adds++
		m.olds = append(m.olds, new(uint64))
		keep(m.x.ep.AtomicFetch(uct.AtomicAdd, 8, 1, m.olds[m.adds-1], m.x.key.Addr()+moveCounter, m.x.key))
	case 6: // more than the window: it waits for credit
		n := len(m.bytes)
		data := pattern(20_000, n)
		m.bytes = append(m.bytes, data...)
		keep(m.x.ep.StreamSend(data, nil))
	case 5:
		m.puts++
		data := make([]byte, 3*faketp.MaxBcopy) // needs several calls
		binary.LittleEndian.PutUint64(data, uint64(m.puts))
		require.NoError(t, m.x.ep.Fence())
		keep(m.x.ep.Put(data, m.x.key.Addr(), m.x.key, nil))
	}
}

// end checks that everything has arrived, once and in order.
func (m *moveTraffic) end(t require.TestingT, p *pair) {
	stream := make([]byte, len(m.bytes))
	if len(stream) > 0 {
		r, err := m.to.ep.StreamRecv(stream, true, new(int), nil)
		require.NoError(t, p.finish(r, err))
		require.Equal(t, m.bytes, stream)
	}
	for _, r := range append(m.recvs, m.sends...) {
		require.NoError(t, p.finish(r, nil))
	}
	require.NoError(t, p.finish(m.x.ep.Flush()))
	for n, buf := range m.bufs {
		require.Equal(t, uint64(n), binary.LittleEndian.Uint64(buf), "message %d", n)
		require.Equal(t, pattern(len(buf), n)[8:], buf[8:])
	}
	if m.puts > 0 {
		require.Equal(t, uint64(m.puts), binary.LittleEndian.Uint64(m.to.mem.Bytes()), "the last put")
	}
	require.Equal(t, uint64(m.adds), binary.LittleEndian.Uint64(m.to.mem.Bytes()[moveCounter:]))
}

// moveStorm starts random operations of both sides between steps of progress, until ok returns true.
func moveStorm(rt *rapid.T, p *pair, both []*moveTraffic, ok func() bool) {
	for n := 0; n < 40 || !ok(); n++ {
		require.Less(rt, n, 1_000_000, "the lane does not return\n%s", p.state())
		if n < 400 {
			both[rapid.IntRange(0, 1).Draw(rt, "side")].step(rt, rapid.IntRange(0, 6).Draw(rt, "class"))
		}
		for range rapid.IntRange(0, 2).Draw(rt, "a") * min(n+1, 1) {
			p.a.w.Progress()
		}
		p.b.w.Progress()
		if n >= 40 {
			p.a.w.Progress()
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// TestFailback_KeepsOrder: both sides have operations in flight while they return to the lane. None is lost or executed
// twice, and messages and operations behind fences keep their order.
func TestFailback_KeepsOrder(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	rapid.Check(t, func(rt *rapid.T) {
		p, _ := failedOver(t, time.Millisecond)
		both := []*moveTraffic{{x: &p.a, to: &p.b}, {x: &p.b, to: &p.a}}
		clear(p.a.mem.Bytes())
		clear(p.b.mem.Bytes())
		moveStorm(rt, p, both, func() bool { return p.backOn("frc") })
		for _, m := range both {
			m.end(rt, p)
		}
		require.True(rt, p.backOn("frc"))
		require.NoError(rt, p.a.ep.Err())
		require.NoError(rt, p.b.ep.Err())
	})
}

// TestFailback_RealTransports: a layer breaks the lane, whose path works again at once. Both sides have operations in
// flight until they use the lane again.
func TestFailback_RealTransports(t *testing.T) {
	for _, tc := range []struct {
		tls  []string
		best string
	}{
		{[]string{"sm", "tcp"}, "sm"},
		{[]string{`\rc`, "tcp"}, "rc"},
	} {
		t.Run(tc.best, func(t *testing.T) {
			b := &breaker{}
			p := newPair(t, b.under(tlsets.Real(tc.best, tc.tls...)), Config{LaneRetryInterval: time.Millisecond}).connect().warm()
			require.Equal(t, tc.best, p.a.ep.lane(wireup.RMA).Iface.kind())
			p.b.dial(t, &p.a)
			require.NoError(t, p.finish(p.b.ep.Flush()))
			b.ep = p.a.ep.lane(wireup.RMA).EP
			r, err := p.a.ep.Put(make([]byte, 8), p.a.key.Addr(), p.a.key, nil)
			_ = p.finish(r, err) // the request may have failed with the lane
			p.until(func() bool { return counters(p.a.w)["worker.replaced_lanes"] > 0 })
			_ = p.flush() // detects the failed lane
			b.ep = nil
			_ = p.finish(p.b.ep.Flush())
			clear(p.a.mem.Bytes())
			clear(p.b.mem.Bytes())
			both := []*moveTraffic{{x: &p.a, to: &p.b}, {x: &p.b, to: &p.a}}
			n := 0
			p.until(func() bool {
				if n++; n <= 300 {
					both[n%2].step(t, n/2%7)
				}
				return n >= 300 && p.backOn(tc.best)
			})
			for _, m := range both {
				m.end(t, p)
			}
			assert.Positive(t, counters(p.a.w)["worker.returned_lanes"])
			assert.Zero(t, counters(p.a.w)["worker.failed_eps"])
		})
	}
}

// TestFailback_BreaksAgain: lanes break at any moment of a move. The EPs do not fail, and use the better lane in the
// end. In rare histories an EP fails: see the limits in docs/design/0021. handshake.TestRetry_BreaksAgain is the same for handshakes.
func TestFailback_BreaksAgain(t *testing.T) {
	if !testenv.Soak() {
		t.Skip("in rare histories an EP fails; make soak")
	}
	testenv.SkipRace(t, oneGoroutine)
	rapid.Check(t, func(rt *rapid.T) {
		p, _ := failedOver(t, time.Millisecond)
		last := ""
		for range rapid.IntRange(1, 5).Draw(rt, "breaks") {
			start := counters(p.a.w)["worker.lane_retries"]
			testenv.ProgressOr(t, patience, func() bool {
				p.step()
				return counters(p.a.w)["worker.lane_retries"] > start || p.backOn("frc")
			}, p.state)
			for range rapid.IntRange(0, 30).Draw(rt, "progress") {
				[]*end{&p.a, &p.b}[rapid.IntRange(0, 1).Draw(rt, "of")].w.Progress()
			}
			x := []*end{&p.a, &p.b}[rapid.IntRange(0, 1).Draw(rt, "side")]
			kind := rapid.SampledFrom([]string{"frc", "frc2"}).Draw(rt, "kind")
			if y := p.a.ep.lane(wireup.RMA); kind == "frc2" && (y == nil || y.Iface.kind() != "frc") {
				kind = "frc" // the other one is in use
			}
			for i := range x.ep.link.lanes.All {
				if y := &x.ep.link.lanes.All[i]; y.EP != nil && !y.Retired && y.Iface.kind() == kind {
					y.EP.(*faketp.EP).Fail(ucs.StatusIOError)
					last = kind
				}
			}
			r, err := p.a.ep.Put(pattern(300, 1), p.a.key.Addr(), p.a.key, nil)
			_ = p.finish(r, err) // failed, if its lane has
			if last == "frc2" {  // there is no third lane
				break
			}
		}
		testenv.ProgressOr(t, patience, func() bool { p.step(); return p.backOn("frc") }, p.state)
		for _, x := range []*end{&p.a, &p.b} {
			_ = p.finish(x.ep.Flush()) // detects the failed lanes
		}
		p.check(t)
		require.LessOrEqual(rt, len(p.a.ep.link.tried), 2)
	})
}

// TestFailback_Close: an EP, or its worker, closes at any moment of a move. With CloseFlush everything that was sent
// before arrives.
func TestFailback_Close(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	rapid.Check(t, func(rt *rapid.T) {
		p, _ := failedOver(t, time.Millisecond)
		p.check(t)
		testenv.ProgressOr(t, patience, func() bool {
			p.step()
			return counters(p.b.w)["worker.lane_retries"] > 0
		}, p.state)
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
		var recvs, sends []*Request
		bufs := make([][]byte, rapid.IntRange(0, 6).Draw(rt, "messages"))
		for i := range bufs {
			bufs[i] = make([]byte, 100)
			r, err := to.w.TagRecv(bufs[i], 3, exact, nil, nil)
			require.NoError(rt, err)
			recvs = append(recvs, r)
			if r, err = x.ep.TagSend(3, pattern(100, i), nil); r != nil {
				sends = append(sends, r)
			}
			require.NoError(rt, err)
			progress()
		}
		how := rapid.SampledFrom([]string{"flush", "force", "worker"}).Draw(rt, "how")
		switch how {
		case "flush":
			require.NoError(rt, p.finish(x.ep.Close(CloseFlush)))
			for i, r := range recvs {
				require.NoError(rt, p.finish(r, nil), "message %d", i)
				require.Equal(rt, pattern(100, i), bufs[i])
			}
		case "force":
			require.NoError(rt, p.finish(x.ep.Close(CloseForce)))
		default:
			require.NoError(rt, x.w.Close())
		}
		if how != "flush" {
			for _, r := range recvs { // the message may have arrived
				r.Cancel()
			}
			sends = append(sends, recvs...)
		}
		for _, r := range sends {
			p.until(r.Done)
			r.Release()
		}
		if to.ep.Err() == nil {
			p.until(func() bool { return to.ep.Err() != nil })
		}
		if how != "worker" { // the fakes of a worker that closes behave as if it had died
			require.ErrorIs(rt, to.ep.Err(), ucs.ErrPeerClosed)
		}
	})
}

// TestFailback_NoCarrier: a trial whose handshake cannot be sent does not fail the EP.
func TestFailback_NoCarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := failedOver(t, laneRetry)
		p.until(p.away)
		f.FailNext("new ep fud", ucs.ErrUnreachable)
		sleepWith(laneRetry+time.Second, &p.a, &p.b)
		assert.Empty(t, f.Failures, "the trial could not send anything")
		require.True(t, p.away())
		sleepWith(3*laneRetry, &p.a, &p.b)
		p.until(func() bool { return p.backOn("frc") })
		p.check(t)
	})
}

// TestFailback_LaneOfMessagesBreaks: while the role of messages moves from a lane to another one, the lane breaks at
// either side. The EP fails, so that lost messages are reported.
func TestFailback_LaneOfMessagesBreaks(t *testing.T) {
	for _, side := range []string{"own", "peer"} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := faketp.LikeUD()
				slow.Latency *= 10
				p, _ := failedOverBeside(t, laneRetry, slow)
				require.NoError(t, p.finish(p.a.ep.TagSend(7, pattern(8, 1), nil)))
				require.NoError(t, p.finish(p.b.w.TagRecv(make([]byte, 8), 7, 0, nil, nil)))
				require.Equal(t, "frc2", p.a.ep.lane(wireup.AM).Iface.kind())
				sleepWith(laneRetry-time.Second, &p.a, &p.b)
				for n := 0; p.a.ep.link.moves == nil || p.a.ep.link.moves.oldAM == nil; n++ {
					require.Less(t, n, 10_000, "the role of messages does not move\n%s", p.state())
					time.Sleep(time.Millisecond)
					if p.b.w.Progress(); p.a.ep.link.moves == nil || p.a.ep.link.moves.oldAM == nil {
						p.a.w.Progress()
					}
				}
				x := map[string]*end{"own": &p.a, "peer": &p.b}[side]
				for n := range x.ep.link.lanes.All {
					if y := &x.ep.link.lanes.All[n]; y.EP != nil && y.Iface.kind() == "frc2" {
						y.EP.(*faketp.EP).Fail(ucs.StatusTimedOut)
					}
				}
				for n := 0; p.a.ep.Err() == nil; n++ {
					require.Less(t, n, 10_000, "it does not fail\n%s", p.state())
					p.step()
				}
			})
		})
	}
}

// TestFailback_FailedEP: an EP that has failed does not retry a lane, also before its owner closes it.
func TestFailback_FailedEP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := failedOver(t, laneRetry)
		breakLane(p.a.ep, wireup.RMA, ucs.StatusConnReset)
		p.until(func() bool { return p.a.ep.Err() != nil })
		sleepWith(3*laneRetry, &p.a)
		assert.Zero(t, counters(p.a.w)["worker.lane_retries"])
		_, waits := p.a.ep.deadline()
		assert.False(t, waits)
	})
}
