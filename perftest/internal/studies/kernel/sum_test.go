package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSum_IsExact: a sum of numbers of very different magnitudes is equal to that without rounding, in any order.
func TestSum_IsExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var forward, backward Sum
		exact := new(big.Float).SetPrec(400)
		terms := make([]float64, 50)
		for i := range terms {
			// All bits of a number of at least 2^-75 are above the lowest bit of a sum.
			terms[i] = math.Ldexp(random.Float64()-0.5, random.IntN(120)-68)
			exact.Add(exact, big.NewFloat(terms[i]))
		}
		for i := range terms {
			forward.Add(terms[i])
			backward.Add(terms[len(terms)-1-i])
		}
		require.Equal(t, forward, backward)
		want, _ := exact.Float64()
		assert.InEpsilon(t, want, forward.Value(), 1e-15)
	}
}

func TestSum_CancelsLargeTerms(t *testing.T) {
	var s Sum
	for _, v := range []float64{1 << 51, 1e-20, -(1 << 51), -1} {
		s.Add(v)
	}
	s.Add(1)
	assert.InEpsilon(t, 1e-20, s.Value(), 1e-15)
}

func TestSum_Limits(t *testing.T) {
	for _, v := range []float64{0, math.Copysign(0, -1), math.SmallestNonzeroFloat64, math.Ldexp(1, -fraction-1)} {
		var s Sum
		s.Add(v)
		assert.Zero(t, s, "%v is below the lowest bit", v)
	}
	for _, v := range []float64{math.Ldexp(1, -fraction), math.Nextafter(1<<52, 0), -math.Nextafter(1<<52, 0)} {
		var s Sum
		s.Add(v)
		assert.Equal(t, v, s.Value())
	}
	for _, v := range []float64{1 << 52, -(1 << 52), math.Inf(1), math.NaN()} {
		var s Sum
		s.Add(v)
		s.Add(1)
		assert.True(t, math.IsNaN(s.Value()), "%v exceeds the range", v)
	}
}

func TestSplit(t *testing.T) {
	always := func(int, int) bool { return true }
	for _, c := range []struct {
		edges []int
		n     int
		want  []int
	}{
		{[]int{8, 8, 8, 8}, 1, []int{1, 1, 1, 1}},
		{[]int{8, 8, 8, 8}, 2, []int{1, 1, 1, 2}},
		{[]int{8, 8, 8, 8}, 16, []int{2, 2, 2, 2}},
		{[]int{16, 8, 8, 8}, 2, []int{2, 1, 1, 1}},
		{[]int{6, 6, 12}, 12, []int{2, 2, 3}},
	} {
		got, ok := Split(c.edges, c.n, always)
		require.True(t, ok)
		assert.Equal(t, c.want, got, "%v for %d", c.edges, c.n)
	}
	_, ok := Split([]int{8, 8}, 3, func(edge, parts int) bool { return edge%parts == 0 })
	assert.False(t, ok)
	assert.Equal(t, []int{16, 16, 16, 16}, Grow([]int{8, 8, 8, 8}, 16))
	assert.Equal(t, []int{8, 8, 16}, Grow([]int{8, 8, 8}, 2))
}

// TestNeighbor: the neighbor of a neighbor on the other side is the rank itself, and ranks are numbered without gaps.
func TestNeighbor(t *testing.T) {
	parts := []int{2, 3, 1, 4}
	seen := map[int]bool{}
	for rank := range 24 {
		at := Place(rank, parts)
		for d := range parts {
			assert.Equal(t, rank, Neighbor(at, parts, d, 0))
			up := Neighbor(at, parts, d, 1)
			seen[up] = true
			assert.Equal(t, rank, Neighbor(Place(up, parts), parts, d, -1))
		}
	}
	assert.Len(t, seen, 24)
}
