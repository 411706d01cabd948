package sp

import (
	"fmt"
	"math"
)

// Axes of the grid.
const (
	axisX = iota
	axisY
	axisZ
	axes
)

// Sides of a cell along an axis.
const (
	low = iota
	high
	sides
)

// halo is the number of planes of a neighboring cell that a cell needs.
const halo = 2

// box is a cell of the grid: the part of one rank between cuts across all axes.
type box struct {
	at   [axes]int // index of the cell along each axis
	low  [axes]int // the first point in the grid
	size [axes]int // points
	from [axes]int // the first point, of the cell, that is not on the grid's boundary
	to   [axes]int // after the last such point
	side [axes][sides]bool
}

// points returns the number of points of a box.
func (b *box) points() int { return b.size[0] * b.size[1] * b.size[2] }

// inner returns the number of points of a box that are not on the grid's boundary.
func (b *box) inner() int { return b.lines(0) * (b.to[0] - b.from[0]) }

// lines returns the number of lines along axis d that are not on the grid's boundary.
func (b *box) lines(d int) int {
	e, f := across(d)
	return (b.to[e] - b.from[e]) * (b.to[f] - b.from[f])
}

// face returns the number of points of a plane of the box across axis d.
func (b *box) face(d int) int {
	e, f := across(d)
	return b.size[e] * b.size[f]
}

// across returns the two other axes; neighboring points in memory are along the first.
func across(d int) (inner, outer int) {
	switch d {
	case axisX:
		return axisY, axisZ
	case axisY:
		return axisX, axisZ
	}
	return axisX, axisY
}

// layout is the multipartition of the grid: q*q ranks divide it into q*q*q cells, and each has q of
// them on a diagonal. So in a sweep along any axis each rank has work in each stage, and all cells
// next to those of a rank on one side belong to one rank.
type layout struct {
	grid  int // points in each direction
	edge  int // q
	rank  int
	cells []box
}

// newLayout returns the layout of one rank.
func newLayout(grid, ranks, rank int) (*layout, error) {
	if err := checkRanks(grid, ranks); err != nil {
		return nil, err
	}
	q := root(ranks)
	l := &layout{grid: grid, edge: q, rank: rank}
	i, j := rank%q, rank/q
	for k := range q {
		l.cells = append(l.cells, newBox(grid, q, [axes]int{(i + k) % q, (j - k + q) % q, k}))
	}
	return l, nil
}

// checkRanks returns an error if a grid cannot be divided between that many ranks.
func checkRanks(grid, ranks int) error {
	q := root(ranks)
	if ranks < 1 || q*q != ranks {
		return fmt.Errorf("%d ranks: want a square number", ranks)
	}
	if grid/q < halo {
		return fmt.Errorf("%d ranks cut a grid of %d points into cells of %d: want %d at least", ranks, grid, grid/q, halo)
	}
	return nil
}

// root returns the square root, rounded down.
func root(n int) int { return int(math.Sqrt(float64(max(n, 0)))) }

// newBox returns the cell at a place among q in each direction.
func newBox(grid, q int, at [axes]int) box {
	b := box{at: at}
	for d, k := range at {
		size, more := grid/q, grid%q
		b.low[d] = k*size + min(k, more)
		b.size[d] = size
		if k < more {
			b.size[d]++
		}
		b.side[d] = [sides]bool{k > 0, k < q-1}
		b.to[d] = b.size[d]
		if !b.side[d][low] {
			b.from[d]++
		}
		if !b.side[d][high] {
			b.to[d]--
		}
	}
	return b
}

// neighbor returns the rank of the cells beside those of this rank.
func (l *layout) neighbor(d, side int) int {
	q := l.edge
	i, j := l.rank%q, l.rank/q
	step := q - 1
	if side == high {
		step = 1
	}
	switch d {
	case axisX:
		i += step
	case axisY:
		j += step
	default: // the cell of the same rank with z+1 is further in x and back in y
		i += q - step
		j += step
	}
	return i%q + j%q*q
}

// stage returns the k-th cell of this rank along axis d.
func (l *layout) stage(d, k int) int {
	for c := range l.cells {
		if l.cells[c].at[d] == k {
			return c
		}
	}
	panic("sp: a layout without a cell in a stage")
}
