package stencil

import (
	"encoding/binary"
	"math"
)

// initial is the grid before the first iteration. Its first row is next to the last one; outside
// its first and last column it is 0.
func initial(row, col int) float64 { return float64((row*31+col*17)%101) - 50 }

// point computes an iteration at one point, from itself and its neighbors.
func point(center, up, down, left, right float64) float64 {
	return (center + up + down + left + right) / 5
}

// band contains rows of the grid.
type band struct {
	rows, cols int
	v          []float64
}

func newBand(rows, cols int) band { return band{rows, cols, make([]float64, rows*cols)} }

// row returns row i.
func (b band) row(i int) []float64 { return b.v[i*b.cols : (i+1)*b.cols] }

// fill sets the initial values; the first row of the band has the given number in the grid.
func (b band) fill(first int) {
	for i := range b.rows {
		for j := range b.row(i) {
			b.row(i)[j] = initial(first+i, j)
		}
	}
}

// update computes one iteration for columns [lo, hi) from b to next. above and below are these
// columns of the rows next to the band.
func (b band) update(next band, lo, hi int, above, below []float64) {
	for i := range b.rows {
		up, down, center := above, below, b.row(i)
		if i > 0 {
			up = b.row(i - 1)[lo:hi]
		}
		if i < b.rows-1 {
			down = b.row(i + 1)[lo:hi]
		}
		out := next.row(i)
		for j := lo; j < hi; j++ {
			var left, right float64
			if j > 0 {
				left = center[j-1]
			}
			if j < b.cols-1 {
				right = center[j+1]
			}
			out[j] = point(center[j], up[j-lo], down[j-lo], left, right)
		}
	}
}

// serial returns the grid after n iterations, computed by one thread.
func serial(rows, cols, n int) band {
	cur, next := newBand(rows, cols), newBand(rows, cols)
	cur.fill(0)
	for range n {
		cur.update(next, 0, cols, cur.row(rows-1), cur.row(0))
		cur, next = next, cur
	}
	return cur
}

// element is a float64 in memory, in the byte order of the machine.
const element = 8

func encode(b []byte, v []float64) {
	for i, x := range v {
		binary.NativeEndian.PutUint64(b[i*element:], math.Float64bits(x))
	}
}

func decode(v []float64, b []byte) {
	for i := range v {
		v[i] = math.Float64frombits(binary.NativeEndian.Uint64(b[i*element:]))
	}
}
