package bench

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/layertest"
	"github.com/gucx/gucx/perftest/internal/measure/tick"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
	"github.com/gucx/gucx/perftest/internal/peers/session"
	"github.com/gucx/gucx/perftest/internal/peers/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var clock = func() *tick.Clock {
	c, err := tick.Calibrate()
	if err != nil {
		panic(err)
	}
	return c
}()

// newRunner returns a runner of plan whose target is a goroutine. The test gets a separate thread, as in a
// measurement.
func newRunner(ctx context.Context, t *testing.T, plan Plan, layers layer.Set) *Runner {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	a, b, err := oob.Pipe()
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() {
		served <- target.Serve(context.Background(), b, layers, target.Options{HelloTimeout: time.Minute, Beside: true})
	}()
	s, err := session.New(ctx, a, layers, session.Options{Beside: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		if err := <-served; ctx.Err() == nil {
			assert.NoError(t, err)
		} else if err != nil {
			assert.ErrorIs(t, err, target.ErrDisconnected)
		}
	})
	return &Runner{Plan: plan, Session: s, Clock: clock, Step: func(string, int) {}}
}

func smallPlan(t *testing.T, testNames ...string) Plan {
	p := Plan{Sizes: []int{1, 8, 4096}, Layers: []string{"verbs", "uct", "ucp"}, Fabric: "none", Strict: true,
		Iterations: 60, Warmup: 10, Rounds: 3, Window: 16}
	for _, n := range testNames {
		test, err := FindTest(n)
		require.NoError(t, err)
		p.Tests = append(p.Tests, test)
	}
	require.NoError(t, p.Check())
	return p
}

// TestRun_WrongDataFails: after a failure there are the records of earlier tests, and none of the failed test, also
// not of layers with correct data.
func TestRun_WrongDataFails(t *testing.T) {
	layers := layertest.Set("verbs", "uct", "ucp")
	layers.Open["uct"] = layertest.Opener(layertest.Corrupt)
	r := newRunner(t.Context(), t, smallPlan(t, "flush", "put_lat", "get_lat"), layers)
	records, err := r.Run(t.Context())
	require.ErrorIs(t, err, ErrData)
	require.Len(t, records, 3, "a record of each layer")
	for _, rec := range records {
		assert.Equal(t, "flush", rec.Test)
	}
}

func TestRun_EveryTestHasRecordsOfEveryLayer(t *testing.T) {
	plan := smallPlan(t, TestNames()...)
	r := newRunner(t.Context(), t, plan, layertest.Set("verbs", "uct", "ucp"))
	steps := 0
	r.Step = func(string, int) { steps++ }
	records, err := r.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, records, 3*plan.Cells())
	assert.Equal(t, plan.Rounds*plan.Cells(), steps)

	for i, rec := range records {
		test, err := FindTest(rec.Test)
		require.NoError(t, err)
		assert.Equal(t, plan.Layers[i%3], rec.Layer)
		assert.Equal(t, "copy", rec.Transport)
		assert.Contains(t, test.Sizes(plan.Sizes), rec.Size)
		assert.Equal(t, test.Window(16), rec.Window)
		assert.GreaterOrEqual(t, rec.Ops, 60)
		assert.GreaterOrEqual(t, rec.P99NS, rec.P50NS)
		assert.GreaterOrEqual(t, rec.PostP99NS, rec.PostNS)
		assert.GreaterOrEqual(t, rec.FlushP99NS, rec.FlushNS)
		assert.Equal(t, []string{"", "verbs", "uct"}[i%3], rec.Over)
		if rec.LoopNS > 0 {
			assert.InEpsilon(t, 1e9/rec.LoopNS, rec.MsgPerS, 1e-9)
		}
	}
}

func TestRun_DetectsFaultsOfLayer(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault layertest.Fault
		tests string
		want  string
		data  bool
	}{
		{"puts are lost", layertest.Drop, "put_lat", "data arrived wrong", true},
		{"gets are lost", layertest.Drop, "get_bw", "read wrong data", true},
		{"adds are lost", layertest.Drop, "add_mr", "the word is 5", true},
		{"fetching adds are lost", layertest.Drop, "fadd_lat", "the word is 5", true},
		{"put corrupts the last byte", layertest.Corrupt, "put_bw", "byte 0 of 1", true},
		{"get corrupts the last byte", layertest.Corrupt, "get_lat", "byte 0 of 1", true},
		{"put writes too much", layertest.Overrun, "put_lat", "bytes after the data", true},
		{"get writes too much", layertest.Overrun, "get_lat", "bytes after the data", true},
		{"messages are lost", layertest.Drop, "am_mr", "have come", true},
		{"messages are corrupted", layertest.Corrupt, "am_lat", "data verification failed", true},
		{"ping is lost", layertest.Drop, "put_pp", "have come", true},
		{"ping is corrupted", layertest.Corrupt, "put_pp", "a sequence number", true},
		{"ping writes too much", layertest.Overrun, "put_pp", "bytes after the data", true},
		{"post fails", layertest.FailPost, "put_bw", "endpoint has failed", false},
		{"operation is missing", layertest.RefuseOp, "put_lat", "unsupported", false},
		{"open fails", layertest.RefuseOpen, "put_lat", "no such device", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			layers := layertest.Set("verbs", "uct", "ucp")
			layers.Open["uct"] = layertest.Opener(c.fault)
			r := newRunner(t.Context(), t, smallPlan(t, c.tests), layers)
			_, err := r.Run(t.Context())
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, "uct")
			assert.Equal(t, c.data, errors.Is(err, ErrData))
		})
	}
}

func TestRun_OmitsUnsupportedOperations(t *testing.T) {
	layers := layertest.Set("verbs", "uct", "ucp")
	layers.Open["uct"] = layertest.Opener(layertest.RefuseOp)
	plan := smallPlan(t, "put_lat", "am_bw")
	plan.Strict = false
	r := newRunner(t.Context(), t, plan, layers)
	steps := 0
	r.Step = func(string, int) { steps++ }
	records, err := r.Run(t.Context())
	require.NoError(t, err)
	assert.Len(t, records, 2*plan.Cells())
	assert.Len(t, r.Skips(), plan.Cells())
	assert.Equal(t, plan.Rounds*plan.Cells(), steps)
	for _, k := range r.Skips() {
		assert.Equal(t, "uct", k.Layer)
	}
	for _, rec := range records {
		assert.Contains(t, []string{"", "verbs"}, rec.Over, "ucp is compared with the measured layer below it")
	}
}

func TestRun_FailsIfNothingIsSupported(t *testing.T) {
	layers := layertest.Set("uct")
	layers.Open["uct"] = layertest.Opener(layertest.RefuseOp)
	plan := smallPlan(t, "put_lat")
	plan.Strict, plan.Layers = false, []string{"uct"}
	_, err := newRunner(t.Context(), t, plan, layers).Run(t.Context())
	assert.ErrorContains(t, err, "nothing could be measured: unsupported")
}

func TestRun_DrivesRequiredTarget(t *testing.T) {
	layers := layertest.Set("verbs", "uct", "ucp")
	layers.Open["uct"] = layertest.Opener(layertest.NeedDrive)
	plan := smallPlan(t, "put_lat", "flush")
	plan.Iterations, plan.Sizes = 6, []int{8}
	records, err := newRunner(t.Context(), t, plan, layers).Run(t.Context())
	require.NoError(t, err)
	assert.Len(t, records, 3*plan.Cells())

	r := newRunner(t.Context(), t, plan, layers)
	r.Freezer = &freezeLog{}
	_, err = r.Run(t.Context())
	assert.ErrorContains(t, err, "uct: the target has to take part and cannot be stopped")
}

func TestRecords_HalveTimesOfPingPong(t *testing.T) {
	l := laneWith(t, "uct", []uint64{20, 20}, []uint64{80, 80}, []uint64{200})
	r := &Runner{Plan: Plan{Rounds: 1}, Clock: &tick.Clock{PerNS: 1, Step: 1}, costs: map[int]cost{1: {}}}
	rec := r.records(Test{Name: "am_lat", Mode: PingPong}, 8, pace{windows: 2, window: 1, every: 1}, []*lane{l})[0]
	assert.InDelta(t, 50, rec.P50NS, 1)
	assert.InDelta(t, 50, rec.LoopNS, 1e-9)
	assert.InDelta(t, 20, rec.PostNS, 1, "the time of the post is not halved")
	assert.InDelta(t, 80, rec.FlushNS, 1, "nor is the time of the flush")
}

func TestStamped_FlushesStreamAtItsEnd(t *testing.T) {
	for _, c := range []struct{ every, want int }{{1, 6}, {6, 1}, {3, 2}} {
		s := newSamples(6, 1)
		op := &flushes{}
		require.NoError(t, s.stamped(op, pace{windows: 6, window: 4, every: c.every}))
		assert.Equal(t, c.want, op.flushed)
		assert.Equal(t, uint64(24), op.Result())
		_, err := plain(op, pace{windows: 6, window: 4, every: c.every}, new(uint64))
		require.NoError(t, err)
		assert.Equal(t, 2*c.want, op.flushed)
		assert.Equal(t, uint64(48), op.Result())
	}
}

// flushes counts calls of Flush.
type flushes struct {
	nothing
	flushed int
}

func (f *flushes) Flush() error { f.flushed++; return nil }

func TestRun_EndsWithContextWhileLayerHangs(t *testing.T) {
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	layers := layertest.Set("verbs", "uct", "ucp")
	layers.Open["uct"] = layertest.Hanging(func() { cancel(why) })
	r := newRunner(ctx, t, smallPlan(t, "put_lat"), layers)
	_, err := r.Run(ctx)
	assert.ErrorIs(t, err, why)
}

func TestRun_StopsBetweenRounds(t *testing.T) {
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	r := newRunner(ctx, t, smallPlan(t, "put_lat"), layertest.Set("verbs", "uct", "ucp"))
	r.Step = func(string, int) { cancel(why) }
	_, err := r.Run(ctx)
	assert.ErrorIs(t, err, why)
}

// freezeLog counts freezes and thaws, and checks that they alternate.
type freezeLog struct {
	frozen bool
	n      int
	err    error
}

func (f *freezeLog) Freeze() error {
	f.frozen = true
	f.n++
	return f.err
}

func (f *freezeLog) Thaw() error {
	f.frozen = false
	return nil
}

func TestRun_FreezesTargetDuringTimedLoops(t *testing.T) {
	plan := smallPlan(t, "put_lat", "fadd_lat")
	r := newRunner(t.Context(), t, plan, layertest.Set("verbs", "uct", "ucp"))
	log := &freezeLog{}
	r.Freezer = log
	r.Step = func(string, int) { assert.True(t, log.frozen) }
	_, err := r.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, plan.Cells(), log.n)
	assert.False(t, log.frozen)
}

func TestRun_ReportsFreezeError(t *testing.T) {
	r := newRunner(t.Context(), t, smallPlan(t, "put_lat"), layertest.Set("verbs", "uct", "ucp"))
	r.Freezer = &freezeLog{err: errors.New("no such process")}
	_, err := r.Run(t.Context())
	assert.ErrorContains(t, err, "no such process")
}

func TestStamped_DoesNotAllocate(t *testing.T) {
	s := newSamples(1000, 1)
	var op nothing
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		s.post, s.flush, s.batches = s.post[:0], s.flush[:0], s.batches[:0]
		assert.NoError(t, s.batch(&op, pace{windows: 1000, window: 4, every: 1, samples: 1000}))
	}))
	assert.Len(t, s.post, 1000)
	assert.Len(t, s.batches, 1)
	assert.Equal(t, uint64(11*2*4*1000), op.Result(), "AllocsPerRun has an additional warm-up run")
}

func TestCost_IsMeasuredOnceForAWindow(t *testing.T) {
	r := &Runner{Clock: clock, costs: map[int]cost{}}
	one, again, many := r.cost(1), r.cost(1), r.cost(256)
	assert.Equal(t, one, again)
	assert.Positive(t, one.plain)
	assert.Greater(t, many.plain, one.plain, "256 posts take longer than one")
}

func TestPlan_Check(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Plan)
		want   string
	}{
		{"unchanged", func(*Plan) {}, ""},
		{"no test", func(p *Plan) { p.Tests = nil }, "nothing to measure"},
		{"no size", func(p *Plan) { p.Sizes = nil }, "nothing to measure"},
		{"size 0", func(p *Plan) { p.Sizes = []int{0} }, "size 0"},
		{"size too large", func(p *Plan) { p.Sizes = []int{MaxSize + 1} }, "outside 0.."},
		{"no iterations", func(p *Plan) { p.Iterations = 0 }, "at least 1"},
		{"too many rounds", func(p *Plan) { p.Rounds = maxRounds + 1 }, "rounds, at most"},
		{"no rounds", func(p *Plan) { p.Rounds = 0 }, "at least 1"},
		{"negative warm-up", func(p *Plan) { p.Warmup = -1 }, "at least 0"},
		{"no window", func(p *Plan) { p.Window = 0 }, "window 0"},
		{"huge window", func(p *Plan) { p.Window = maxWindow + 1 }, "window"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := smallPlan(t, "put_lat")
			c.change(&p)
			err := p.Check()
			if c.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestPlan_Windows(t *testing.T) {
	p := Plan{Iterations: 1000, Rounds: 10}
	assert.Equal(t, 100, p.windows(8, 1))
	assert.Equal(t, 100, p.windows(SmallSize, 1))
	assert.Equal(t, 50, p.windows(2*SmallSize, 1), "half as many operations for the double size")
	assert.Equal(t, 1, p.windows(1<<30, 1))
	assert.Equal(t, 1, p.windows(8, 256))
	assert.Equal(t, 7, p.windows(8, 16))
}

func TestPlan_Warmup(t *testing.T) {
	p := Plan{Iterations: 1000, Rounds: 10, Warmup: 300}
	for size, want := range map[int]int{8: 300, SmallSize: 300, 3 * SmallSize: 100, 1 << 30: 0} {
		assert.Equal(t, want, p.pace(Test{Mode: Latency}, size).warmup, "%d bytes", size)
	}
}

// TestPlan_MemoryOfSamplesHasALimit: the limit holds for any number of operations, and all of them contribute to
// the mean.
func TestPlan_MemoryOfSamplesHasALimit(t *testing.T) {
	for _, c := range []struct{ iterations, rounds, samples int }{
		{100_000, 20, 5000},
		{maxSamples, 1, maxSamples},
		{4 * maxSamples, 4, maxSamples / 4},
		{1 << 40, 20, maxSamples / 20},
		{1 << 40, maxRounds, 1},
	} {
		plan := Plan{Iterations: c.iterations, Rounds: c.rounds}
		p := plan.pace(Test{Mode: Latency}, 8)
		assert.Equal(t, c.samples, p.samples, "%+v", c)
		assert.LessOrEqual(t, p.samples*c.rounds, maxSamples, "%+v", c)
		assert.GreaterOrEqual(t, p.ops()*c.rounds, c.iterations, "%+v", c)
	}
}

func TestBatch_StoresSamplesOfAPart(t *testing.T) {
	for _, c := range []struct{ every, flushed int }{{1, 2 + 6}, {6, 1 + 1}} {
		s := newSamples(2, 1)
		op := &flushes{}
		p := pace{windows: 6, window: 4, every: c.every, samples: 2}
		require.NoError(t, s.batch(op, p))
		assert.Len(t, s.post, 2)
		assert.Len(t, s.batches, 1)
		assert.Equal(t, c.flushed, op.flushed, "a stream is flushed at the end of each loop")
		assert.EqualValues(t, p.all(), op.Result())
	}
}

func TestFindTest(t *testing.T) {
	for alias, name := range aliases {
		got, err := FindTest(alias)
		require.NoError(t, err)
		assert.Equal(t, name, got.Name)
	}
	_, err := FindTest("tag_rate")
	require.ErrorContains(t, err, "tag_rate")
	assert.ErrorContains(t, err, strings.Join(TestNames(), ", "))
	for _, name := range DefaultTests() {
		_, err := FindTest(name)
		assert.NoError(t, err)
	}
}
