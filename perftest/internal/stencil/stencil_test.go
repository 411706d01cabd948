package stencil

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/msgrate"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

func bench(ranks, threads int) *Bench {
	return &Bench{Rig: &msgrate.RealTime{Fabric: softhca.FabricShm}, Rows: 8, Cols: 16, Iterations: 7, Ranks: ranks, Threads: threads}
}

// Every category and split of four threads gives the grid of the serial run.
func TestMeasure(t *testing.T) {
	for _, h := range [][2]int{{4, 1}, {2, 2}, {1, 4}} {
		for _, c := range endpoint.Categories() {
			t.Run(fmt.Sprintf("%d.%d/%v", h[0], h[1], c), func(t *testing.T) {
				b := bench(h[0], h[1])
				o, err := b.Measure(t.Context(), mlx5.Config{}, msgrate.Config{Plan: c.Plan(h[1]), Inline: c != endpoint.Static})
				require.NoError(t, err)
				assert.Positive(t, o.Rates.Total)
				assert.Len(t, o.Rates.PerThread, 8)
			})
		}
	}
}

// Two QPs and one CQ for each thread, and one context at least for each rank.
func TestMeasure_Resources(t *testing.T) {
	for _, c := range []struct {
		category       endpoint.Category
		ranks, threads int
		want           [4]int // contexts, QPs, CQs, UAR pages of a node
	}{
		{endpoint.MPIEverywhere, 2, 2, [4]int{4, 8, 4, 32}},
		{endpoint.TwoXDynamic, 2, 2, [4]int{2, 16, 8, 2 * (8 + 4)}},
		{endpoint.Dynamic, 1, 4, [4]int{1, 8, 4, 8 + 4}},
		{endpoint.SharedDynamic, 4, 1, [4]int{4, 8, 4, 4 * (8 + 1)}},
		{endpoint.MPIThreads, 2, 2, [4]int{2, 4, 2, 16}},
	} {
		o, err := bench(c.ranks, c.threads).Measure(t.Context(), mlx5.Config{}, msgrate.Config{Plan: c.category.Plan(c.threads)})
		require.NoError(t, err)
		r := o.Resources
		assert.Equal(t, c.want, [4]int{r.Contexts, r.QPs, r.CQs, r.UARPages}, c.category)
	}
}

func TestVerify_FindsAWrongPoint(t *testing.T) {
	b := bench(1, 1)
	r := &run{bench: b}
	want := serial(b.Rows, b.Cols, b.Iterations)
	for i := range 2 {
		k := &rank{}
		k.grid[1] = band{4, 16, want.v[i*64 : (i+1)*64]}
		r.ranks = append(r.ranks, k)
	}
	require.NoError(t, r.verify())
	r.ranks[1].grid[1] = newBand(4, 16)
	require.ErrorIs(t, r.verify(), msgrate.ErrData)
	require.ErrorContains(t, r.verify(), "point 4, 0")
}

// An iteration on a grid small enough to compute by hand.
func TestSerial(t *testing.T) {
	cur, next := newBand(2, 2), newBand(2, 2)
	copy(cur.v, []float64{5, 10, 15, 20})
	border := make([]float64, 2)
	cur.update(next, 0, 2, border, border)
	assert.Equal(t, []float64{6, 7, 8, 9}, next.v)
}

func TestCheck(t *testing.T) {
	for text, b := range map[string]*Bench{
		"must be positive":     {},
		"8 rows for 6 ranks":   bench(3, 1),
		"16 columns for 3":     bench(1, 3),
		"iterations are too m": {Rows: 2, Cols: 1, Iterations: 1 << 28, Ranks: 1, Threads: 1},
		"points and 1 it":      {Rows: 1 << 13, Cols: 1 << 13, Iterations: 1, Ranks: 1, Threads: 1},
	} {
		assert.ErrorContains(t, b.Check(), text)
	}
}
