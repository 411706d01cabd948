package lj

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/gucx/gucx/perftest/internal/studies/kernel"
)

const axes = 3

// position is a place in the box, in fractions of its edges: 2^64 is an edge.
type position [axes]uint64

// Config is a problem.
type Config struct {
	Cells       [axes]int // of the crystal, with four atoms each
	Density     float64   // of atoms
	Temperature float64   // initial temperature
	Cutoff      float64   // of forces
	Skin        float64   // distance by which lists of neighbors exceed the cutoff
	TimeStep    float64
	Seed        uint64
}

// atomsInCell is the number of atoms in a cell of a face-centered cubic crystal.
const atomsInCell = 4

// Atoms returns the number of atoms.
func (c *Config) Atoms() int { return atomsInCell * c.Cells[0] * c.Cells[1] * c.Cells[2] }

// edge returns the edge of a cell of the crystal.
func (c *Config) edge() float64 { return math.Cbrt(atomsInCell / c.Density) }

// reach returns the radius of a list of neighbors.
func (c *Config) reach() float64 { return c.Cutoff + c.Skin }

// Check returns an error if the problem is invalid for a number of ranks.
func (c *Config) Check(ranks int) error {
	for _, v := range []struct {
		name  string
		value float64
	}{{"density", c.Density}, {"cutoff", c.Cutoff}, {"skin", c.Skin}, {"time step", c.TimeStep}} {
		if !(v.value > 0 && v.value < most) {
			return fmt.Errorf("%w: %s %v: want more than 0, and less than %d", kernel.ErrStudy, v.name, v.value, most)
		}
	}
	if !(c.Temperature >= 0 && c.Temperature < most) {
		return fmt.Errorf("%w: temperature %v: want 0 or more, and less than %d", kernel.ErrStudy, c.Temperature, most)
	}
	for _, n := range c.Cells {
		if n < 1 || n > mostCells {
			return fmt.Errorf("%w: %v cells: want 1 to %d", kernel.ErrStudy, c.Cells, mostCells)
		}
		if float64(n)*c.edge() < 2*c.reach() {
			return fmt.Errorf("%w: %v cells: the box is smaller than twice cutoff and skin, %.2f", kernel.ErrStudy, c.Cells, 2*c.reach())
		}
	}
	if c.Atoms() > mostAtoms {
		return fmt.Errorf("%w: %d atoms: want %d or fewer", kernel.ErrStudy, c.Atoms(), mostAtoms)
	}
	_, err := c.Parts(ranks)
	return err
}

const (
	most      = 100
	mostCells = 10_000
	mostAtoms = 10_000_000
)

// Parts returns the division of the box. A domain is not shorter than reach.
func (c *Config) Parts(ranks int) ([]int, error) {
	parts, ok := kernel.Split(c.Cells[:], ranks, func(cells, parts int) bool {
		return float64(cells)*c.edge() >= float64(parts)*c.reach()
	})
	if !ok {
		return nil, fmt.Errorf("%w: %d ranks for %v cells: domains are smaller than cutoff and skin, %.2f", kernel.ErrStudy, ranks, c.Cells, c.reach())
	}
	return parts, nil
}

// fraction returns the place i/n of an edge; i is less than n.
func fraction(i, n int) uint64 {
	q, _ := bits.Div64(uint64(i), 0, uint64(n))
	return q
}

// part returns which of n equal parts of an edge contains a place.
func part(x uint64, n int) int {
	hi, _ := bits.Mul64(x, uint64(n))
	return int(hi)
}

// firstOf returns the first place of a part: the least x with part(x, n) = i.
func firstOf(i, n int) uint64 {
	q, rest := bits.Div64(uint64(i), 0, uint64(n))
	if rest > 0 {
		q++
	}
	return q
}

// box contains the edges of the box, and the length of the unit of a position.
type box struct {
	length [axes]float64
	unit   [axes]float64
}

func newBox(c *Config) (b box) {
	for d, n := range c.Cells {
		b.length[d] = float64(n) * c.edge()
		b.unit[d] = b.length[d] / (1 << 64)
	}
	return b
}

// volume returns the volume of the box.
func (b *box) volume() float64 { return b.length[0] * b.length[1] * b.length[2] }

// between returns the vector from one place to the nearest image of another, and its square. The vector in the other
// direction has the opposite signs and is otherwise equal, bit for bit.
func (b *box) between(from, to *position) (d [axes]float64, square float64) {
	for k := range d {
		d[k] = float64(int64(to[k]-from[k])) * b.unit[k]
		square += d[k] * d[k]
	}
	return d, square
}

// units converts a length along an edge to a difference of positions.
func (b *box) units(length float64, edge int) uint64 { return uint64(length / b.unit[edge]) }
