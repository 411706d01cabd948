package msgrate

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Each feature that is turned off changes only its property of the work requests. The counts are for each message. The
// device fetches a payload that is not inline; only the rate of its reads would show that.
func TestFeatures_WorkRequests(t *testing.T) {
	for _, c := range []struct {
		features              string
		doorbells, bfs, cqes  float64
		inline, blueFlameable bool
	}{
		{"all", 1. / 32, 0, 1. / 64, true, true},
		{"w/o postlist", 1, 1, 1. / 64, true, true},
		{"w/o unsignaled", 1. / 32, 0, 1, true, true},
		{"w/o inline", 1. / 32, 0, 1. / 64, false, true},
		{"w/o blueflame", 1. / 32, 0, 1. / 64, true, false},
		{"w/o postlist blueflame", 1, 0, 1. / 64, true, false},
		{"postlist+unsignaled+inline", 1, 1, 1, false, true},
	} {
		t.Run(c.features, func(t *testing.T) {
			f, err := ParseFeatures(c.features)
			require.NoError(t, err)
			cfg, queues := f.Apply(Config{Threads: 2, Messages: 640}, mlx5.Config{})
			o := measure(t, softhca.FabricLoop, queues, cfg)
			n := float64(o.Counts.WQEs)
			assert.Equal(t, []float64{c.doorbells, c.bfs, c.cqes},
				[]float64{float64(o.Counts.Doorbells) / n, float64(o.Counts.BlueFlames) / n, float64(o.Counts.CQEs) / n})

			s := openLoop(t, queues, cfg)
			assert.Equal(t, c.inline, s.Threads[0].list[0].Inline != nil)
			assert.Equal(t, !c.inline, s.Threads[0].list[0].SGList != nil)
			reg, ok := s.Threads[0].qp.Register()
			require.True(t, ok)
			assert.Equal(t, c.blueFlameable, reg.BlueFlame)
		})
	}
}

func openLoop(t *testing.T, queues mlx5.Config, cfg Config) *Senders {
	t.Helper()
	devs, err := (&RealTime{Fabric: softhca.FabricLoop}).Devices(1, queues)
	require.NoError(t, err)
	s, err := Open(devs[0], nil, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// The objects of sixteen threads with x-way sharing: contexts, PDs, MRs, CQs, QPs, UAR pages, and distinct
// payloads.
func TestShares_Resources(t *testing.T) {
	type row [7]int
	for share, want := range map[Share]map[int]row{
		ShareNone:   {1: {16, 16, 16, 16, 16, 144, 16}},
		ShareBuf:    {1: {16, 16, 16, 16, 16, 144, 16}, 4: {16, 16, 16, 16, 16, 144, 4}, 16: {16, 16, 16, 16, 16, 144, 1}},
		ShareCtx:    {2: {8, 16, 16, 16, 16, 80, 16}, 16: {1, 16, 16, 16, 16, 24, 16}},
		ShareCtx2x:  {16: {1, 16, 16, 32, 32, 40, 16}},
		ShareCtxUAR: {8: {2, 16, 16, 16, 16, 24, 16}, 16: {1, 16, 16, 16, 16, 16, 16}},
		SharePD:     {1: {1, 16, 16, 16, 16, 24, 16}, 16: {1, 1, 16, 16, 16, 24, 16}},
		ShareMR:     {1: {1, 1, 16, 16, 16, 24, 16}, 8: {1, 1, 2, 16, 16, 24, 16}},
		ShareCQ:     {1: {1, 1, 16, 16, 16, 24, 16}, 4: {1, 1, 16, 4, 16, 24, 16}, 16: {1, 1, 16, 1, 16, 24, 16}},
		ShareQP:     {1: {1, 1, 16, 16, 16, 8, 16}, 16: {1, 1, 16, 1, 1, 8, 16}},
	} {
		for x, w := range want {
			t.Run(fmt.Sprintf("%s/%d", share, x), func(t *testing.T) {
				cfg, err := share.Apply(Config{Threads: 16, Messages: 64, Postlist: 1, Unsignaled: 4}, x)
				require.NoError(t, err)
				s := openLoop(t, mlx5.Config{}, cfg)
				r, ok := s.Resources()
				require.True(t, ok)
				payloads := map[uint64]bool{}
				for _, th := range s.Threads {
					payloads[th.list[0].SGList[0].Addr] = true
				}
				assert.Equal(t, w, row{r.Contexts, r.PDs, r.MRs, r.CQs, r.QPs, r.UARPages, len(payloads)})
			})
		}
	}
}

// With all types of sharing the data arrives, with concurrent threads.
func TestSweep_Run(t *testing.T) {
	for _, fabric := range []softhca.Fabric{softhca.FabricLoop, softhca.FabricShm} {
		t.Run(string(fabric), func(t *testing.T) {
			sweep := &Sweep{Base: Config{Threads: 4, Messages: 256}, Shares: Shares(), Ways: []int{1, 4},
				Features: []Features{{}, {NoPostlist: true, NoUnsignaled: true, NoInline: true}}, Rounds: 1}
			steps := 0
			points, err := sweep.Run(t.Context(), On{&RealTime{Fabric: fabric}}, func(string) { steps++ })
			require.NoError(t, err)
			assert.Equal(t, len(points), steps)
			require.Len(t, points, 2*2*len(Shares()))
			for _, p := range points {
				assert.Positive(t, p.Rate, p)
				assert.Positive(t, p.Relative, p)
				assert.Positive(t, p.Used, p)
				assert.Positive(t, p.CQEs, p)
				assert.GreaterOrEqual(t, p.CPU, 0., p)
			}
			assert.Equal(t, []int{1, 4}, []int{points[0].Threads, points[1].Threads}, "without sharing: a curve over threads")
		})
	}
}

// Payloads in separate cache lines, packed, and shared.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want []int
	}{
		{Config{}, []int{0, 64, 128, 192}},
		{Config{Packed: true}, []int{0, 2, 4, 6}},
		{Config{Buf: 2}, []int{0, 0, 64, 64}},
		{Config{Buf: 3, Packed: true}, []int{0, 0, 0, 2}},
		{Config{Size: 65}, []int{0, 128, 256, 384}},
	} {
		c.cfg.Threads = 4
		cfg, err := c.cfg.withDefaults()
		require.NoError(t, err)
		m := layout(cfg)
		var got []int
		for i := range 4 {
			got = append(got, m.payload(i))
		}
		assert.Equal(t, c.want, got, c.cfg)
		assert.GreaterOrEqual(t, m.landing, m.payload(3)+cfg.Size)
	}
}

func TestConfig_Refused(t *testing.T) {
	for text, cfg := range map[string]Config{
		"one must divide the other": {Postlist: 3, Unsignaled: 4, Depth: 12},
		"must be a multiple":        {Depth: 65},
		"is negative":               {Size: -1},
		"cannot lie within the PD":  {MR: 2},
	} {
		_, err := cfg.withDefaults()
		assert.ErrorContains(t, err, text)
	}
	_, err := ParseFeatures("w/o postlists")
	assert.ErrorContains(t, err, "postlist, unsignaled, inline, blueflame")
	_, err = ParseShare("td")
	assert.ErrorContains(t, err, "ctx-2xqps")
	_, err = ShareCtx.Apply(Config{}, 0)
	assert.ErrorContains(t, err, "0-way")
}

func TestFeatures_Text(t *testing.T) {
	for _, f := range AllButEach() {
		back, err := ParseFeatures(f.String())
		require.NoError(t, err)
		assert.Equal(t, f, back)
	}
	assert.Equal(t, "all w/o postlist inline", Features{NoPostlist: true, NoInline: true}.String())
}

// Verification detects a payload that did not arrive, and a changed byte beside it.
func TestVerify(t *testing.T) {
	s := openLoop(t, mlx5.Config{}, Config{Threads: 2, Messages: 64})
	require.ErrorIs(t, s.Verify(), ErrData)
	for _, th := range s.Threads {
		for more := true; more; {
			var err error
			more, err = th.Step()
			require.NoError(t, err)
		}
	}
	require.NoError(t, s.Verify())
	s.memory.all[s.memory.landing+2] ^= 1
	require.ErrorIs(t, s.Verify(), ErrData)
}

// failing fails in one of its measurements.
type failing struct {
	Measurer
	remaining int
	fail      error
	before    func() // called before the failure; may be nil
}

func (f *failing) Measure(ctx context.Context, queues mlx5.Config, cfg Config) (Outcome, error) {
	f.remaining--
	if f.remaining > 0 {
		return f.Measurer.Measure(ctx, queues, cfg)
	}
	if f.before != nil {
		f.before()
	}
	return Outcome{}, f.fail
}

// TestSweep_ReturnsMeasuredPointsAfterError: points have the figures of the complete rounds, or of an incomplete first
// round, and a point that has failed itself has none.
func TestSweep_ReturnsMeasuredPointsAfterError(t *testing.T) {
	broken, wrong, enough := errors.New("broken"), fmt.Errorf("%w: byte 3", ErrData), errors.New("enough")
	for _, c := range []struct {
		name   string
		at     int // number of the measurement that fails, of 3 rounds of 3 points
		fail   error
		ends   bool // the context ends
		ways   []int
		rounds int
	}{
		{"at once", 1, broken, false, nil, 0},
		{"in the first round", 3, broken, false, []int{1, 2}, 1},
		{"in the second", 5, broken, false, []int{1, 4}, 1},
		{"the first of a round", 7, broken, false, []int{2, 4}, 2},
		{"the last of all", 9, broken, false, []int{1, 2}, 2},
		{"ended in the first round", 2, enough, true, []int{1}, 1},
		{"ended in the second", 5, enough, true, []int{1, 2, 4}, 1},
		{"ended, and wrong", 5, wrong, true, []int{1, 4}, 1},
		{"not at all", 10, nil, false, []int{1, 2, 4}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			m := &failing{Measurer: On{&RealTime{Fabric: softhca.FabricLoop}}, remaining: c.at, fail: c.fail}
			if c.ends {
				m.before = func() { cancel(enough) }
			}
			sweep := &Sweep{Base: Config{Threads: 4, Messages: 64}, Shares: []Share{ShareCQ}, Ways: []int{1, 2, 4}, Features: []Features{{}}, Rounds: 3}
			points, err := sweep.Run(ctx, m, nil)
			require.ErrorIs(t, err, c.fail)
			var ways []int
			for _, p := range points {
				ways = append(ways, p.Ways)
				assert.Equal(t, c.rounds, p.Rounds)
				assert.Positive(t, p.Rate)
				assert.Positive(t, p.Relative)
			}
			assert.Equal(t, c.ways, ways)
		})
	}
}

// TestFigure_Spread: the spread is the difference of the extremes, divided by the median; a single round has none.
func TestFigure_Spread(t *testing.T) {
	var rounds []Outcome
	for _, v := range []float64{90, 100, 120} {
		rounds = append(rounds, Outcome{Rates: Rates{Total: v, Puts: v / 2}})
	}
	f := newFigure(rounds)
	assert.InDelta(t, 0.3, f.Spread, 1e-9)
	assert.InDelta(t, 0.3, f.PutsSpread, 1e-9)
	assert.Zero(t, newFigure(rounds[:1]).Spread)
	assert.Zero(t, newFigure([]Outcome{{}, {}}).Spread, "rounds without messages")
	columns := len(Sheet(nil, nil, []Point{{Rounds: 1}}).Columns)
	assert.Len(t, Sheet(nil, nil, []Point{{Rounds: 1}, {Rounds: 2}}).Columns, columns+1)
}
