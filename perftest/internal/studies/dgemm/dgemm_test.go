package dgemm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// The product is correct for every category, on both fabrics, with more and with fewer threads than rows of
// tiles.
func TestMeasure(t *testing.T) {
	for _, fabric := range []softhca.Fabric{softhca.FabricLoop, softhca.FabricShm} {
		for _, c := range endpoint.Categories() {
			t.Run(string(fabric)+"/"+c.String(), func(t *testing.T) {
				b := &Bench{Rig: &msgrate.RealTime{Fabric: fabric}, N: 12, Tile: 4, Rows: 2}
				o, err := b.Measure(t.Context(), mlx5.Config{}, msgrate.Config{Threads: 4, Plan: c.Plan(4), Inline: true})
				require.NoError(t, err)
				assert.Positive(t, o.Rates.Total)
				// 6 x 3 tiles of C, 3 products each: 2 rows of A, 4 of B, 2 of C.
				assert.Equal(t, int64(18*3*(2+4+2)), o.Rates.Messages)
				assert.Greater(t, o.Rates.Gets, o.Rates.Total/4)
				assert.Greater(t, o.Rates.Puts, o.Rates.Total/4)
				assert.Len(t, o.Rates.PerThread, 4)
				assert.Positive(t, o.Resources.UUARs)
			})
		}
	}
}

func TestVerify_DetectsWrongElement(t *testing.T) {
	r := &run{layout: layout{4, 2, 2}, global: make([]byte, 3*4*4*8)}
	require.ErrorIs(t, r.verify(), msgrate.ErrData)
	for row := range 4 {
		for col := range 4 {
			store(r.global[r.layout.index(matrixC, row, col):], r.layout.product(row, col))
		}
	}
	require.NoError(t, r.verify())
	store(r.global[r.layout.index(matrixC, 3, 1):], 1e6)
	require.ErrorContains(t, r.verify(), "C[3][1]")
}

// In the layout each element has a separate place.
func TestLayout(t *testing.T) {
	l := layout{6, 2, 3}
	seen := map[int]bool{}
	for m := range matrices {
		for r := range 6 {
			for c := range 6 {
				i := l.index(m, r, c)
				assert.False(t, seen[i])
				assert.Zero(t, i%8)
				assert.Less(t, i, matrices*l.matrixLen())
				seen[i] = true
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for _, b := range []Bench{{}, {N: 10, Tile: 3}, {N: 2048, Tile: 2}, {N: 4, Tile: -2}, {N: 4, Tile: 2, Rows: 3}} {
		assert.Error(t, b.Check(), b)
	}
	assert.NoError(t, (&Bench{N: 10, Tile: 5}).Check())
	assert.NoError(t, (&Bench{N: 10, Tile: 5, Rows: 2}).Check())
}
