package compare

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// near and far return pairs of these phases.
func near(ucx, ours float64) Pair { return Pair{ucx, ours, []float64{50, 52, 51}, Near} }
func far(ucx, ours float64) Pair  { return Pair{ucx, ours, []float64{240, 250, 245}, Far} }
func moved(ucx, ours float64) Pair {
	return Pair{ucx, ours, []float64{50, 250, 245}, Moved}
}

func TestSummarize_RowForEachPhase(t *testing.T) {
	at := Case{Metric: Time, Goal: 0.5, Size: 1000}
	// In the third pair other load has slowed our run down.
	pairs := []Pair{near(100, 40), far(400, 100), near(110, 44), near(100, 90), moved(1, 1), near(120, 48)}

	rows := summarize(at, pairs, nil)
	require.Len(t, rows, 2)
	n, f := rows[0], rows[1]
	assert.Equal(t, []Phase{Near, Far}, []Phase{n.Phase, f.Phase})
	assert.Equal(t, Figure{105, 100, 120}, n.UCX)
	assert.Equal(t, Figure{46, 40, 90}, n.Ours)
	assert.Equal(t, Figure{0.4, 0.4, 0.9}, n.Ratio, "pair by pair")
	assert.InDelta(t, 0.4, n.Best, 1e-9)
	assert.Equal(t, Figure{51, 50, 52}, n.Probe)
	assert.True(t, n.Reached())
	assert.Len(t, n.Pairs, 4)
	assert.Equal(t, []Pair{moved(1, 1)}, n.Moved)
	assert.InDelta(t, 0.25, f.Ratio.Median, 1e-9)
	assert.Empty(t, f.Moved, "only one row has the moved pairs")
}

func TestSummarize_Metrics(t *testing.T) {
	at := Case{Metric: Rate, Goal: 2.6, Size: 1000}
	pairs := []Pair{near(100, 40), near(110, 44), near(120, 48)}
	s := summarize(at, pairs, nil)[0]
	assert.InDelta(t, 1e3/110, s.UCX.Median, 1e-9, "millions per second")
	assert.InDelta(t, 1e3/120, s.UCX.Min, 1e-9, "the slowest run has the smallest rate")
	assert.InDelta(t, 2.5, s.Ratio.Median, 1e-9)
	assert.InDelta(t, 2.5, s.Best, 1e-9)
	assert.False(t, s.Reached())

	at.Metric = Bandwidth
	assert.InDelta(t, 1000.0/110, summarize(at, pairs, nil)[0].UCX.Median, 1e-9, "GB/s")
}

// If all pairs are moved, the row contains them.
func TestSummarize_OnlyMovedPairs(t *testing.T) {
	rows := summarize(Case{Metric: Time, Goal: 1}, []Pair{moved(100, 50), moved(200, 100)}, nil)
	require.Len(t, rows, 1)
	assert.Equal(t, Moved, rows[0].Phase)
	assert.InDelta(t, 0.5, rows[0].Ratio.Median, 1e-9)
	assert.Len(t, rows[0].Pairs, 2)
	assert.Empty(t, rows[0].Moved, "the row itself has the moved pairs")
}

func TestSummarize_FailedWithoutPairs(t *testing.T) {
	failed := errors.New("x")
	for _, m := range []Metric{Time, Rate} {
		rows := summarize(Case{Metric: m, Goal: 0}, nil, failed)
		require.Len(t, rows, 1)
		assert.False(t, rows[0].Reached())
		assert.Equal(t, failed, rows[0].Failed)
	}
}

func TestSummarize_EveryPairIsInOneRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Float64Range(1, 1000)
		all := make([]Pair, rapid.IntRange(1, 30).Draw(t, "n"))
		for i := range all {
			probes := rapid.SliceOfN(ns, 3, 3).Draw(t, "probes")
			all[i] = Pair{ns.Draw(t, "ucx"), ns.Draw(t, "ours"), probes, phaseOf(probes, defaultNear)}
		}
		rows := summarize(Case{Metric: Time}, all, nil)
		n := 0
		for _, r := range rows {
			require.NotEmpty(t, r.Pairs)
			require.Positive(t, r.Ratio.Median)
			for _, p := range r.Pairs {
				require.Equal(t, r.Phase, p.Phase)
			}
			n += len(r.Pairs) + len(r.Moved)
		}
		require.Equal(t, len(all), n)
	})
}
