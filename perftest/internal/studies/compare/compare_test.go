package compare

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/measure/bench"
)

// script is a side that returns figures in order, and then repeats the last one.
type script struct {
	ns   []float64
	fail error // after the figures
	ops  []int // of each run
	log  *[]string
	name string
}

func (s *script) run(_ context.Context, _ Case, ops int) (float64, error) {
	if s.log != nil {
		*s.log = append(*s.log, s.name)
	}
	s.ops = append(s.ops, ops)
	n := len(s.ops) - 1
	if n >= len(s.ns) {
		if s.fail != nil {
			return 0, s.fail
		}
		n = len(s.ns) - 1
	}
	return s.ns[n], nil
}

// newComparer returns a comparer with a probe that returns values in order, and then repeats the last one.
func newComparer(ucx, ours side, probes ...float64) *comparer {
	n := 0
	return &comparer{
		plan: plan{Rounds: 3, Time: time.Millisecond, Near: 100},
		ucx:  ucx, ours: ours,
		probe: func() (float64, error) {
			n++
			return probes[min(n, len(probes))-1], nil
		},
		listener: silent{},
	}
}

var twoSided = Case{Name: "sm", Test: "am_lat", Size: 8, Metric: Time, Goal: 1}

func TestCompare_AlternatesRunsAndProbes(t *testing.T) {
	var log []string
	ucx := &script{ns: []float64{100}, log: &log, name: "ucx"}
	ours := &script{ns: []float64{50}, log: &log, name: "ours"}
	r := newComparer(ucx, ours)
	r.probe = func() (float64, error) { log = append(log, "probe"); return 50, nil }
	rows, err := r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	assert.Equal(t, []string{"ucx", "ours", // trial runs that determine the number of operations
		"probe", "ucx", "probe", "ours", "probe",
		"probe", "ours", "probe", "ucx", "probe",
		"probe", "ucx", "probe", "ours", "probe"}, log)
	require.Len(t, rows, 1)
	assert.Len(t, rows[0].Pairs, 3)
	assert.InDelta(t, 0.5, rows[0].Ratio.Median, 1e-9)
	assert.Equal(t, []int{minOps, 10_000, 10_000, 10_000}, ucx.ops, "operations in 1 ms at 100 ns each")
	assert.Equal(t, []int{minOps, 20_000, 20_000, 20_000}, ours.ops)
}

func TestCompare_LoopbackIsNotProbed(t *testing.T) {
	r := newComparer(&script{ns: []float64{10}}, &script{ns: []float64{10}})
	r.probe = func() (float64, error) { return 0, errors.New("probed") }
	c := twoSided
	c.UCX.Loop = true
	rows, err := r.compare(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, rows[0].Failed)
	assert.Equal(t, Alone, rows[0].Phase)
	assert.Len(t, rows[0].Pairs, 3)
}

// An exceptional first probe discards no pair. A pair during which the CPUs have moved is repeated.
func TestCompare_RepeatsMovedPairs(t *testing.T) {
	r := newComparer(&script{ns: []float64{100}}, &script{ns: []float64{50}}, 20, 55, 55, 55)
	rows, err := r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.Equal(t, []int{3, 1}, []int{len(rows[0].Pairs), len(rows[0].Moved)})
	assert.Equal(t, Near, rows[0].Phase)
}

// On a machine that is always in one phase, or changes it between pairs, the rows get enough pairs.
func TestCompare_FillsARowInEveryPhase(t *testing.T) {
	r := newComparer(&script{ns: []float64{100}}, &script{ns: []float64{50}}, 300)
	rows, err := r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.Equal(t, Far, rows[0].Phase)
	assert.Len(t, rows[0].Pairs, 3)

	r = newComparer(&script{ns: []float64{100}}, &script{ns: []float64{50}}, 300, 300, 300, 300, 300, 300, 50)
	rows, err = r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	assert.Equal(t, []int{3, 2}, []int{len(rows[0].Pairs), len(rows[1].Pairs)}, "pairs of both rows when one has enough")
}

func TestCompare_StopsIfAllPairsAreMoved(t *testing.T) {
	r := newComparer(&script{ns: []float64{100}}, &script{ns: []float64{50}})
	n := 0
	r.probe = func() (float64, error) { n++; return float64(50 + 250*(n%2)), nil }
	rows, err := r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.Equal(t, Moved, rows[0].Phase)
	assert.Len(t, rows[0].Pairs, 3*triesPerRound)
	assert.InDelta(t, 0.5, rows[0].Ratio.Median, 1e-9)
}

func TestCompare_FailureKeepsEarlierPairs(t *testing.T) {
	broken := errors.New("no such layout")
	r := newComparer(&script{ns: []float64{100, 100}, fail: broken}, &script{ns: []float64{50}}, 50)
	rows, err := r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	require.ErrorIs(t, rows[0].Failed, broken)
	assert.Len(t, rows[0].Pairs, 1)

	r = newComparer(&script{fail: broken}, &script{ns: []float64{50}}, 50)
	rows, err = r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	require.ErrorIs(t, rows[0].Failed, broken)
	assert.Empty(t, rows[0].Pairs)

	r = newComparer(&script{ns: []float64{100}}, &script{ns: []float64{50}})
	r.probe = func() (float64, error) { return 0, broken }
	rows, err = r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	assert.ErrorIs(t, rows[0].Failed, broken)
}

// If a side moves wrong data, its earlier pairs are no result.
func TestCompare_WrongDataDropsAllPairs(t *testing.T) {
	_, err := exec.Command("sh", "-c", "exit 3").Output()
	r := newComparer(&script{ns: []float64{100}}, &script{ns: []float64{50, 50}, fail: oursFailed(err)}, 50)
	rows, err := r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	require.ErrorIs(t, rows[0].Failed, bench.ErrData)
	assert.Empty(t, rows[0].Pairs)
	_, err = exec.Command("sh", "-c", "exit 1").Output()
	assert.NotErrorIs(t, oursFailed(err), bench.ErrData)
}

// enough cancels the context at the first pair.
type enough struct {
	silent
	cancel func()
}

func (e enough) pair(Case, []Pair) { e.cancel() }

func TestCompare_EndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	r := newComparer(&script{ns: []float64{100}}, &script{ns: []float64{50}}, 50)
	r.listener = enough{cancel: func() { cancel(why) }}
	_, err := r.compare(ctx, twoSided)
	assert.ErrorIs(t, err, why)
}

func TestOps_Limits(t *testing.T) {
	for _, c := range []struct {
		time  time.Duration
		ns    float64
		size  int
		trial int
		want  int
	}{
		{defaultTime, 100, 8, trialOps, 1_500_000},
		{defaultTime, 1e-9, 8, trialOps, maxOps},
		{defaultTime, 1e9, 8, trialOps, minOps},
		{defaultTime, 1e7, mib, trialBytes / mib, minOps},
		{2 * time.Millisecond, 100, 8, 200, 20_000}, // a short run has a short trial run
		{time.Microsecond, 100, 8, minOps, minOps},
	} {
		s := &script{ns: []float64{c.ns}}
		r := newComparer(s, s, 50)
		r.plan.Time = c.time
		got, err := r.ops(t.Context(), s, Case{Size: c.size})
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
		assert.Equal(t, []int{c.trial}, s.ops)
	}
}
