package compare

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script is a side that returns figures in order; the last one again and again.
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

func newComparer(ucx, ours side, probes ...float64) *comparer {
	n := 0
	return &comparer{
		plan: plan{Rounds: 3, Time: time.Millisecond},
		ucx:  ucx, ours: ours,
		phase: &phase{limit: 100, probe: func() (float64, error) {
			n++
			return probes[min(n, len(probes))-1], nil
		}},
		step: func(Case, int, Pair) {},
	}
}

var twoSided = Case{Name: "sm", Test: "am_lat", Size: 8, Metric: Time, Goal: 1}

func TestCompare_TakesTurnsWithProbesBetween(t *testing.T) {
	var log []string
	ucx := &script{ns: []float64{100}, log: &log, name: "ucx"}
	ours := &script{ns: []float64{50}, log: &log, name: "ours"}
	r := newComparer(ucx, ours)
	r.phase.probe = func() (float64, error) { log = append(log, "probe"); return 50, nil }
	s, err := r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	assert.Equal(t, []string{"ucx", "ours", // to find out how many operations
		"probe", "ucx", "probe", "ours", "probe",
		"probe", "ours", "probe", "ucx", "probe",
		"probe", "ucx", "probe", "ours", "probe"}, log)
	assert.Equal(t, 3, s.Kept)
	assert.InDelta(t, 0.5, s.Ratio, 1e-9)
	assert.Equal(t, []int{trialOps, 10_000, 10_000, 10_000}, ucx.ops, "1 ms of 100 ns each")
	assert.Equal(t, []int{trialOps, 20_000, 20_000, 20_000}, ours.ops)
}

func TestCompare_LoopbackIsNotProbed(t *testing.T) {
	r := newComparer(&script{ns: []float64{10}}, &script{ns: []float64{10}})
	r.phase.probe = func() (float64, error) { return 0, errors.New("probed") }
	c := twoSided
	c.UCX.Loop = true
	s, err := r.compare(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, s.Failed)
	assert.Equal(t, 3, s.Kept)
}

func TestCompare_RepeatsWhatDoesNotCountAndGivesUp(t *testing.T) {
	// The trial, a far pair, then three near ones.
	r := newComparer(&script{ns: []float64{1, 1, 100}}, &script{ns: []float64{1, 1, 50}}, 50, 500, 50)
	s, err := r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	assert.Equal(t, []int{3, 1, 0}, []int{s.Kept, s.Far, s.Slow})

	// One run is always much slower than the other.
	slow := &script{ns: []float64{100, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200}}
	s, err = newComparer(slow, &script{ns: []float64{50}}, 50).compare(t.Context(), twoSided)
	require.NoError(t, err)
	assert.Equal(t, 3*triesPerRound, len(s.Pairs))
	assert.Equal(t, []int{1, 0, 8}, []int{s.Kept, s.Far, s.Slow})
}

func TestCompare_FailureKeepsWhatWasMeasured(t *testing.T) {
	broken := errors.New("no such layout")
	r := newComparer(&script{ns: []float64{100, 100}, fail: broken}, &script{ns: []float64{50}}, 50)
	s, err := r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	require.ErrorIs(t, s.Failed, broken)
	assert.Equal(t, 1, s.Kept)

	r = newComparer(&script{fail: broken}, &script{ns: []float64{50}}, 50)
	s, err = r.compare(t.Context(), twoSided)
	require.NoError(t, err)
	require.ErrorIs(t, s.Failed, broken)
	assert.Empty(t, s.Pairs)
}

func TestCompare_EndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	r := newComparer(&script{ns: []float64{100}}, &script{ns: []float64{50}}, 50)
	r.step = func(Case, int, Pair) { cancel(why) }
	_, err := r.compare(ctx, twoSided)
	assert.ErrorIs(t, err, why)
}

func TestOps_Limits(t *testing.T) {
	for _, c := range []struct {
		ns    float64
		size  int
		trial int
		want  int
	}{
		{100, 8, trialOps, 10_000},
		{1e-9, 8, trialOps, maxOps},
		{1e9, 8, trialOps, minOps},
		{1e5, mib, trialBytes / mib, minOps},
	} {
		s := &script{ns: []float64{c.ns}}
		got, err := newComparer(s, s, 50).ops(t.Context(), s, Case{Size: c.size})
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
		assert.Equal(t, []int{c.trial}, s.ops)
	}
}
