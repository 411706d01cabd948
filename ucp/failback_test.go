package ucp_test

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
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// laneRetry is the interval of most tests.
const laneRetry = 10 * time.Second

// failedOver is a pair whose EPs use frc2 because frc has failed. b has an EP over the same connection.
func failedOver(t testing.TB, retry time.Duration) (*ucppair.Pair, *faketp.Fabric) {
	return failedOverBeside(t, retry, faketp.LikeUD())
}

// failedOverBeside is failedOver with a transport of datagrams. Messages use it if it has the lowest latency.
func failedOverBeside(t testing.TB, retry time.Duration, datagrams faketp.Kind) (*ucppair.Pair, *faketp.Fabric) {
	p, f := ucppair.Fake(t, ucp.Config{LaneRetryInterval: retry}, faketp.LikeRC(), likeRC2(), datagrams)
	p.Connect().Warm()
	require.Equal(t, "frc", kindOf(p.A.EP.Lane(wireup.RMA).Iface))
	breakLane(p.A.EP, wireup.RMA, ucs.StatusIOError)
	require.ErrorIs(t, p.Flush(), ucs.ErrIO)
	p.B.Dial(t, &p.A)
	p.Until(func() bool { // or the first lane is back already
		x, n := p.A.EP.Lane(wireup.RMA), counters(p.A.W)
		return n["worker.replaced_lanes"] > 0 && (x != nil && kindOf(x.Iface) == "frc2" || n["worker.returned_lanes"] > 0)
	})
	_ = p.Finish(p.B.EP.Flush()) // detects the failed lane, if b has one
	return p, f
}

// handshakesQuiet reports whether neither side has a handshake in progress.
func handshakesQuiet(p *ucppair.Pair) bool {
	return p.A.EP.Handshake().Quiet() && p.B.EP.Handshake().Quiet()
}

// kindsOf are the transports of the open lanes of an EP.
func kindsOf(e *ucp.EP) (all []string) {
	for i := range e.Lanes().All {
		if x := &e.Lanes().All[i]; x.EP != nil {
			all = append(all, kindOf(x.Iface))
		}
	}
	slices.Sort(all)
	return all
}

// backOn reports whether both sides have one lane each, over the given transport, and no other lane.
func backOn(p *ucppair.Pair, kind string) bool {
	return handshakesQuiet(p) && slices.Equal(kindsOf(p.A.EP), []string{kind}) && slices.Equal(kindsOf(p.B.EP), []string{kind})
}

// bothOnSpare reports whether both sides have lanes over frc2, and none over frc.
func bothOnSpare(p *ucppair.Pair) bool {
	for _, x := range []*ucppair.End{&p.A, &p.B} {
		if all := kindsOf(x.EP); slices.Contains(all, "frc") || !slices.Contains(all, "frc2") {
			return false
		}
	}
	return handshakesQuiet(p)
}

// checkTraffic uses all classes of operations in both directions.
func checkTraffic(t *testing.T, p *ucppair.Pair) {
	t.Helper()
	for seed, x := range []*ucppair.End{&p.A, &p.B} {
		to := []*ucppair.End{&p.B, &p.A}[seed]
		data := testenv.Pattern(1000, seed)
		require.NoError(t, p.Finish(x.EP.Put(data, x.Key.Addr(), x.Key, nil)))
		require.NoError(t, p.Finish(x.EP.Flush()))
		testenv.RequireBytes(t, data, to.Mem.Bytes()[:1000])
		var old uint64
		require.NoError(t, p.Finish(x.EP.AtomicFetch(uct.AtomicAdd, 8, 1, &old, x.Key.Addr()+2048, x.Key)))
		buf := make([]byte, 1000)
		r, err := to.W.TagRecv(buf, 5, exact, nil, nil)
		require.NoError(t, err)
		require.NoError(t, p.Finish(x.EP.TagSend(5, data, nil)))
		require.NoError(t, p.Finish(r, nil))
		testenv.RequireBytes(t, data, buf)
	}
}

// TestFailback: after the interval both sides use the better lane again, and the other one closes. Keys are bound to
// the lane.
func TestFailback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := failedOver(t, laneRetry)
		checkTraffic(t, p)
		assert.Contains(t, p.A.EP.Explain(), "failed transport: frc fake0:1: ")
		assert.Contains(t, p.A.EP.Explain(), "retry: frc fake0:1, in ")
		require.Len(t, p.A.EP.Info().Retries, 1)
		assert.Empty(t, p.B.EP.Info().Retries, "the side that has proposed the lane tries it")

		sleepWith(laneRetry/2, &p.A, &p.B)
		require.True(t, bothOnSpare(p), "the interval has not passed")
		sleepWith(laneRetry/2+time.Second, &p.A, &p.B)
		p.Until(func() bool { return backOn(p, "frc") })
		for _, x := range []*ucppair.End{&p.A, &p.B} {
			assert.Equal(t, uint64(1), counters(x.W)["worker.lane_retries"])
			assert.Equal(t, uint64(1), counters(x.W)["worker.returned_lanes"])
			assert.NotContains(t, x.EP.Explain(), "given up")
			assert.NotContains(t, x.EP.Explain(), "tried again")
		}
		checkTraffic(t, p)
		assert.Same(t, p.A.EP.Lane(wireup.RMA).Put, p.A.Key.Putter())
		_, waits := p.A.EP.Deadline()
		assert.False(t, waits, "no timer runs any more")
	})
}

// TestFailback_DeadPath: retries of a path that is still dead have no effect on operations, and their pauses grow.
func TestFailback_DeadPath(t *testing.T) {
	testenv.SkipShort(t, "virtual time has one goroutine")
	synctest.Test(t, func(t *testing.T) {
		p, f := failedOver(t, laneRetry)
		retries := func() uint64 { return counters(p.A.W)["worker.lane_retries"] }
		var at []time.Duration
		start := time.Now()
		for n := range uint64(5) {
			f.FailNext("connect frc", ucs.ErrUnreachable)
			for retries() == n {
				sleepWith(time.Second, &p.A, &p.B)
			}
			at = append(at, time.Since(start).Round(laneRetry))
			p.Until(func() bool { return bothOnSpare(p) })
			checkTraffic(t, p)
		}
		assert.IsIncreasing(t, at)
		assert.GreaterOrEqual(t, at[4]-at[3], 8*laneRetry)
		assert.Equal(t, 1, p.A.EP.Tried(), "the list of failures does not grow")
		for counters(p.A.W)["worker.returned_lanes"] == 0 {
			sleepWith(time.Second, &p.A, &p.B)
		}
		p.Until(func() bool { return backOn(p, "frc") })
		checkTraffic(t, p)
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
	p.Until(func() bool { return bothOnSpare(p) })
	freeze := func(frozen bool) {
		for _, i := range f.Ifaces {
			i.Frozen = frozen && i.Kind.Name == "frc"
		}
	}
	freeze(true)
	sleepWith(laneRetry+time.Second, &p.A, &p.B)
	x := &p.B
	if here {
		x = &p.A
	}
	trial := slices.IndexFunc(x.EP.LaneInfos(), func(i ucp.LaneInfo) bool { return i.Trial })
	require.GreaterOrEqual(t, trial, 0)
	x.EP.Lanes().All[x.EP.LaneInfos()[trial].Number].EP.(*faketp.EP).Fail(st)
	checkTraffic(t, p)
	p.Until(func() bool { return bothOnSpare(p) })
	freeze(false)
	sleepWith(3*laneRetry, &p.A, &p.B)
	p.Until(func() bool { return backOn(p, "frc") })
	checkTraffic(t, p)
	require.NoError(t, p.A.EP.Err())
	require.NoError(t, p.B.EP.Err())
}

// TestFailback_Never: by default, and with an infinite interval, no timer runs, and no lane is retried.
func TestFailback_Never(t *testing.T) {
	for _, interval := range []time.Duration{0, config.Infinite} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := failedOver(t, interval)
			_, waits := p.A.EP.Deadline()
			assert.False(t, waits)
			sleepWith(time.Minute, &p.A, &p.B)
			assert.True(t, bothOnSpare(p))
			assert.Zero(t, counters(p.A.W)["worker.lane_retries"])
		})
	}
}

// moveTraffic is the traffic of one side.
type moveTraffic struct {
	x, to *ucppair.End
	sends []*ucp.Request
	recvs []*ucp.Request
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
	keep := func(r *ucp.Request, err error) {
		require.NoError(t, err)
		if r != nil {
			m.sends = append(m.sends, r)
		}
	}
	size := []int{16, 1500, tlsets.RndvThresh + 5000}[min(class, 2)]
	switch class {
	case 0, 1, 2:
		buf := make([]byte, size)
		r, err := m.to.W.TagRecv(buf, 9, exact, nil, nil)
		require.NoError(t, err)
		if r != nil {
			m.recvs = append(m.recvs, r)
		}
		m.bufs = append(m.bufs, buf)
		data := testenv.Pattern(size, n)
		binary.LittleEndian.PutUint64(data, uint64(n))
		keep(m.x.EP.TagSend(9, data, nil))
	case 3: // a number behind a fence; earlier ones must not overwrite it
		m.puts++
		data := make([]byte, 8)
		binary.LittleEndian.PutUint64(data, uint64(m.puts))
		require.NoError(t, m.x.EP.Fence())
		keep(m.x.EP.Put(data, m.x.Key.Addr(), m.x.Key, nil))
	case 4:
		m.adds++
		m.olds = append(m.olds, new(uint64))
		keep(m.x.EP.AtomicFetch(uct.AtomicAdd, 8, 1, m.olds[m.adds-1], m.x.Key.Addr()+moveCounter, m.x.Key))
	case 6: // more than the window: it waits for credit
		n := len(m.bytes)
		data := testenv.Pattern(20_000, n)
		m.bytes = append(m.bytes, data...)
		keep(m.x.EP.StreamSend(data, nil))
	case 5:
		m.puts++
		data := make([]byte, 3*faketp.MaxBcopy) // needs several calls
		binary.LittleEndian.PutUint64(data, uint64(m.puts))
		require.NoError(t, m.x.EP.Fence())
		keep(m.x.EP.Put(data, m.x.Key.Addr(), m.x.Key, nil))
	}
}

// end checks that everything has arrived, once and in order.
func (m *moveTraffic) end(t require.TestingT, p *ucppair.Pair) {
	stream := make([]byte, len(m.bytes))
	if len(stream) > 0 {
		r, err := m.to.EP.StreamRecv(stream, true, new(int), nil)
		require.NoError(t, p.Finish(r, err))
		require.Equal(t, m.bytes, stream)
	}
	for _, r := range append(m.recvs, m.sends...) {
		require.NoError(t, p.Finish(r, nil))
	}
	require.NoError(t, p.Finish(m.x.EP.Flush()))
	for n, buf := range m.bufs {
		require.Equal(t, uint64(n), binary.LittleEndian.Uint64(buf), "message %d", n)
		require.Equal(t, testenv.Pattern(len(buf), n)[8:], buf[8:])
	}
	if m.puts > 0 {
		require.Equal(t, uint64(m.puts), binary.LittleEndian.Uint64(m.to.Mem.Bytes()), "the last put")
	}
	require.Equal(t, uint64(m.adds), binary.LittleEndian.Uint64(m.to.Mem.Bytes()[moveCounter:]))
}

// moveStorm starts random operations of both sides between steps of progress, until ok returns true.
func moveStorm(rt *rapid.T, p *ucppair.Pair, both []*moveTraffic, ok func() bool) {
	for n := 0; n < 40 || !ok(); n++ {
		require.Less(rt, n, 1_000_000, "the lane does not return\n%s", p.State())
		if n < 400 {
			both[rapid.IntRange(0, 1).Draw(rt, "side")].step(rt, rapid.IntRange(0, 6).Draw(rt, "class"))
		}
		for range rapid.IntRange(0, 2).Draw(rt, "a") * min(n+1, 1) {
			p.A.W.Progress()
		}
		p.B.W.Progress()
		if n >= 40 {
			p.A.W.Progress()
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
		both := []*moveTraffic{{x: &p.A, to: &p.B}, {x: &p.B, to: &p.A}}
		clear(p.A.Mem.Bytes())
		clear(p.B.Mem.Bytes())
		moveStorm(rt, p, both, func() bool { return backOn(p, "frc") })
		for _, m := range both {
			m.end(rt, p)
		}
		require.True(rt, backOn(p, "frc"))
		require.NoError(rt, p.A.EP.Err())
		require.NoError(rt, p.B.EP.Err())
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
			p := ucppair.New(t, b.under(tlsets.Real(tc.best, tc.tls...)), ucp.Config{LaneRetryInterval: time.Millisecond}).Connect().Warm()
			require.Equal(t, tc.best, kindOf(p.A.EP.Lane(wireup.RMA).Iface))
			p.B.Dial(t, &p.A)
			require.NoError(t, p.Finish(p.B.EP.Flush()))
			b.ep = p.A.EP.Lane(wireup.RMA).EP
			r, err := p.A.EP.Put(make([]byte, 8), p.A.Key.Addr(), p.A.Key, nil)
			_ = p.Finish(r, err) // the request may have failed with the lane
			p.Until(func() bool { return counters(p.A.W)["worker.replaced_lanes"] > 0 })
			_ = p.Flush() // detects the failed lane
			b.ep = nil
			_ = p.Finish(p.B.EP.Flush())
			clear(p.A.Mem.Bytes())
			clear(p.B.Mem.Bytes())
			both := []*moveTraffic{{x: &p.A, to: &p.B}, {x: &p.B, to: &p.A}}
			n := 0
			p.Until(func() bool {
				if n++; n <= 300 {
					both[n%2].step(t, n/2%7)
				}
				return n >= 300 && backOn(p, tc.best)
			})
			for _, m := range both {
				m.end(t, p)
			}
			assert.Positive(t, counters(p.A.W)["worker.returned_lanes"])
			assert.Zero(t, counters(p.A.W)["worker.failed_eps"])
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
			start := counters(p.A.W)["worker.lane_retries"]
			testenv.ProgressOr(t, testenv.Watchdog, func() bool {
				p.Step()
				return counters(p.A.W)["worker.lane_retries"] > start || backOn(p, "frc")
			}, p.State)
			for range rapid.IntRange(0, 30).Draw(rt, "progress") {
				[]*ucppair.End{&p.A, &p.B}[rapid.IntRange(0, 1).Draw(rt, "of")].W.Progress()
			}
			x := []*ucppair.End{&p.A, &p.B}[rapid.IntRange(0, 1).Draw(rt, "side")]
			kind := rapid.SampledFrom([]string{"frc", "frc2"}).Draw(rt, "kind")
			if y := p.A.EP.Lane(wireup.RMA); kind == "frc2" && (y == nil || kindOf(y.Iface) != "frc") {
				kind = "frc" // the other one is in use
			}
			for i := range x.EP.Lanes().All {
				if y := &x.EP.Lanes().All[i]; y.EP != nil && !y.Retired && kindOf(y.Iface) == kind {
					y.EP.(*faketp.EP).Fail(ucs.StatusIOError)
					last = kind
				}
			}
			r, err := p.A.EP.Put(testenv.Pattern(300, 1), p.A.Key.Addr(), p.A.Key, nil)
			_ = p.Finish(r, err) // failed, if its lane has
			if last == "frc2" {  // there is no third lane
				break
			}
		}
		testenv.ProgressOr(t, testenv.Watchdog, func() bool { p.Step(); return backOn(p, "frc") }, p.State)
		for _, x := range []*ucppair.End{&p.A, &p.B} {
			_ = p.Finish(x.EP.Flush()) // detects the failed lanes
		}
		checkTraffic(t, p)
		require.LessOrEqual(rt, p.A.EP.Tried(), 2)
	})
}

// TestFailback_Close: an EP, or its worker, closes at any moment of a move. With CloseFlush everything that was sent
// before arrives.
func TestFailback_Close(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	rapid.Check(t, func(rt *rapid.T) {
		p, _ := failedOver(t, time.Millisecond)
		checkTraffic(t, p)
		testenv.ProgressOr(t, testenv.Watchdog, func() bool {
			p.Step()
			return counters(p.B.W)["worker.lane_retries"] > 0
		}, p.State)
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
		var recvs, sends []*ucp.Request
		bufs := make([][]byte, rapid.IntRange(0, 6).Draw(rt, "messages"))
		for i := range bufs {
			bufs[i] = make([]byte, 100)
			r, err := to.W.TagRecv(bufs[i], 3, exact, nil, nil)
			require.NoError(rt, err)
			recvs = append(recvs, r)
			if r, err = x.EP.TagSend(3, testenv.Pattern(100, i), nil); r != nil {
				sends = append(sends, r)
			}
			require.NoError(rt, err)
			progress()
		}
		how := rapid.SampledFrom([]string{"flush", "force", "worker"}).Draw(rt, "how")
		switch how {
		case "flush":
			require.NoError(rt, p.Finish(x.EP.Close(ucp.CloseFlush)))
			for i, r := range recvs {
				require.NoError(rt, p.Finish(r, nil), "message %d", i)
				require.Equal(rt, testenv.Pattern(100, i), bufs[i])
			}
		case "force":
			require.NoError(rt, p.Finish(x.EP.Close(ucp.CloseForce)))
		default:
			require.NoError(rt, x.W.Close())
		}
		if how != "flush" {
			for _, r := range recvs { // the message may have arrived
				r.Cancel()
			}
			sends = append(sends, recvs...)
		}
		for _, r := range sends {
			p.Until(r.Done)
			r.Release()
		}
		if to.EP.Err() == nil {
			p.Until(func() bool { return to.EP.Err() != nil })
		}
		if how != "worker" { // the fakes of a worker that closes behave as if it had died
			require.ErrorIs(rt, to.EP.Err(), ucs.ErrPeerClosed)
		}
	})
}

// TestFailback_NoCarrier: a trial whose handshake cannot be sent does not fail the EP.
func TestFailback_NoCarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := failedOver(t, laneRetry)
		p.Until(func() bool { return bothOnSpare(p) })
		f.FailNext("new ep fud", ucs.ErrUnreachable)
		sleepWith(laneRetry+time.Second, &p.A, &p.B)
		assert.Empty(t, f.Failures, "the trial could not send anything")
		require.True(t, bothOnSpare(p))
		sleepWith(3*laneRetry, &p.A, &p.B)
		p.Until(func() bool { return backOn(p, "frc") })
		checkTraffic(t, p)
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
				require.NoError(t, p.Finish(p.A.EP.TagSend(7, testenv.Pattern(8, 1), nil)))
				require.NoError(t, p.Finish(p.B.W.TagRecv(make([]byte, 8), 7, 0, nil, nil)))
				require.Equal(t, "frc2", kindOf(p.A.EP.Lane(wireup.AM).Iface))
				sleepWith(laneRetry-time.Second, &p.A, &p.B)
				for n := 0; !p.A.EP.MovesMessages(); n++ {
					require.Less(t, n, 10_000, "the role of messages does not move\n%s", p.State())
					time.Sleep(time.Millisecond)
					if p.B.W.Progress(); !p.A.EP.MovesMessages() {
						p.A.W.Progress()
					}
				}
				x := map[string]*ucppair.End{"own": &p.A, "peer": &p.B}[side]
				for n := range x.EP.Lanes().All {
					if y := &x.EP.Lanes().All[n]; y.EP != nil && kindOf(y.Iface) == "frc2" {
						y.EP.(*faketp.EP).Fail(ucs.StatusTimedOut)
					}
				}
				for n := 0; p.A.EP.Err() == nil; n++ {
					require.Less(t, n, 10_000, "it does not fail\n%s", p.State())
					p.Step()
				}
			})
		})
	}
}

// TestFailback_FailedEP: an EP that has failed does not retry a lane, also before its owner closes it.
func TestFailback_FailedEP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := failedOver(t, laneRetry)
		breakLane(p.A.EP, wireup.RMA, ucs.StatusConnReset)
		p.Until(func() bool { return p.A.EP.Err() != nil })
		sleepWith(3*laneRetry, &p.A)
		assert.Zero(t, counters(p.A.W)["worker.lane_retries"])
		_, waits := p.A.EP.Deadline()
		assert.False(t, waits)
	})
}
