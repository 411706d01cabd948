package stencil

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

func bench(ranks, threads int) *Bench {
	return &Bench{Rig: &msgrate.RealTime{Fabric: softhca.FabricShm},
		Problem: Problem{Rows: 8, Cols: 16, Iterations: 7, Points: 2, Ranks: ranks, Threads: threads}}
}

// The grid of every category and split of four threads is that of the serial run.
func TestMeasure(t *testing.T) {
	for _, h := range []struct {
		ranks, threads int
		fabric         softhca.Fabric
	}{{4, 1, softhca.FabricShm}, {2, 2, softhca.FabricShm}, {1, 4, softhca.FabricShm}, {2, 2, softhca.FabricLoop}} {
		for _, c := range endpoint.Categories() {
			t.Run(fmt.Sprintf("%d.%d/%v/%v", h.ranks, h.threads, h.fabric, c), func(t *testing.T) {
				b := bench(h.ranks, h.threads)
				b.Rig = &msgrate.RealTime{Fabric: h.fabric}
				o, err := b.Measure(t.Context(), mlx5.Config{}, msgrate.Config{Plan: c.Plan(h.threads), Inline: c != endpoint.Static})
				require.NoError(t, err)
				assert.Positive(t, o.Rates.Total)
				assert.Len(t, o.Rates.PerThread, 8)
				// Eight exchanges over the borders of all ranks, sixteen columns in pairs, in both directions.
				assert.Equal(t, int64(8*2*h.ranks*8*2), o.Rates.Messages)
			})
		}
	}
}

// There are two QPs and one CQ for each thread, and at least one context for each rank.
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

func TestVerify_DetectsWrongPoint(t *testing.T) {
	b := bench(1, 1)
	want := serial(b.Rows, b.Cols, b.Iterations)
	bands := []band{{4, 16, want.v[:64]}, {4, 16, want.v[64:]}}
	require.NoError(t, b.verify(bands))
	require.ErrorContains(t, b.verify(bands[:1]), "4 rows, want 8")
	bands[1] = newBand(4, 16)
	require.ErrorIs(t, b.verify(bands), msgrate.ErrData)
	require.ErrorContains(t, b.verify(bands), "point 4, 0")
}

// The grid is a ring: with shifted rows the result is shifted too.
func TestSerial_Ring(t *testing.T) {
	const rows, cols, n = 6, 4, 5
	want := serial(rows, cols, n)
	moved, next := newBand(rows, cols), newBand(rows, cols)
	moved.fill(0)
	moved.v = append(moved.v[2*cols:], moved.v[:2*cols]...)
	for range n {
		moved.update(next, 0, cols, moved.row(rows-1), moved.row(0))
		moved, next = next, moved
	}
	assert.Equal(t, want.v, append(moved.v[4*cols:], moved.v[:4*cols]...))
}

// The result of one iteration on a small grid was computed by hand.
func TestSerial(t *testing.T) {
	cur, next := newBand(2, 2), newBand(2, 2)
	copy(cur.v, []float64{5, 10, 15, 20})
	border := make([]float64, 2)
	cur.update(next, 0, 2, border, border)
	assert.Equal(t, []float64{6, 7, 8, 9}, next.v)
}

func TestCheck(t *testing.T) {
	for text, b := range map[string]*Problem{
		"must be positive":     {},
		"8 rows for 6 ranks":   &bench(3, 1).Problem,
		"16 columns for 3":     &bench(1, 3).Problem,
		"1 columns of a thr":   &bench(1, 16).Problem,
		"iterations are too m": {Rows: 2, Cols: 1, Iterations: 1 << 28, Points: 1, Ranks: 1, Threads: 1},
		"points and 1 it":      {Rows: 1 << 13, Cols: 1 << 13, Iterations: 1, Points: 1, Ranks: 1, Threads: 1},
	} {
		assert.ErrorContains(t, b.Check(), text)
	}
}
