package lj

import (
	"math"

	"github.com/gucx/gucx/perftest/internal/studies/kernel"
)

// atom is the data of an atom that migrates.
type atom struct {
	at       position
	velocity [axes]float64
	id       uint64
}

// words is the number of integers of an atom in a message.
const words = 2*axes + 1

func (a *atom) pack(to []uint64) []uint64 {
	to = append(to, a.at[:]...)
	for _, v := range a.velocity {
		to = append(to, math.Float64bits(v))
	}
	return append(to, a.id)
}

func unpackAtom(from []uint64) (a atom) {
	copy(a.at[:], from)
	for k := range a.velocity {
		a.velocity[k] = math.Float64frombits(from[axes+k])
	}
	a.id = from[2*axes]
	return a
}

// basis contains the positions of the atoms in a cell, in half edges.
var basis = [atomsInCell][axes]int{{0, 0, 0}, {1, 1, 0}, {1, 0, 1}, {0, 1, 1}}

// crystal creates the atoms of a domain.
func crystal(c *Config, own func(*position) bool, first, last [axes]int) (atoms []atom) {
	var cell [axes]int
	for cell[0] = first[0]; cell[0] <= last[0]; cell[0]++ {
		for cell[1] = first[1]; cell[1] <= last[1]; cell[1]++ {
			for cell[2] = first[2]; cell[2] <= last[2]; cell[2]++ {
				for k, half := range basis {
					var a atom
					for d, n := range c.Cells {
						a.at[d] = fraction(2*cell[d]+half[d], 2*n)
					}
					if !own(&a.at) {
						continue
					}
					a.id = uint64(((cell[0]*c.Cells[1]+cell[1])*c.Cells[2]+cell[2])*atomsInCell + k)
					for d := range axes {
						a.velocity[d] = kernel.Uniform(kernel.Hash(c.Seed, a.id, uint64(d)))
					}
					atoms = append(atoms, a)
				}
			}
		}
	}
	return atoms
}

// thermalize removes the total momentum of all atoms and scales velocities to the temperature.
func thermalize(c *Config, comm *kernel.Comm, atoms []atom) error {
	var momentum [axes]kernel.Sum
	for i := range atoms {
		for d, v := range atoms[i].velocity {
			momentum[d].Add(v)
		}
	}
	if err := comm.Sum(&momentum[0], &momentum[1], &momentum[2]); err != nil {
		return err
	}
	n := float64(c.Atoms())
	for i := range atoms {
		for d := range axes {
			atoms[i].velocity[d] -= momentum[d].Value() / n
		}
	}
	now, err := temperature(c, comm, atoms)
	if err != nil {
		return err
	}
	scale := math.Sqrt(c.Temperature / now)
	for i := range atoms {
		for d := range axes {
			atoms[i].velocity[d] *= scale
		}
	}
	return nil
}

// temperature returns that of all atoms, with the degrees of freedom of one atom less: the total
// momentum is 0.
func temperature(c *Config, comm *kernel.Comm, atoms []atom) (float64, error) {
	var squares kernel.Sum
	for i := range atoms {
		v := &atoms[i].velocity
		squares.Add(v[0]*v[0] + v[1]*v[1] + v[2]*v[2])
	}
	err := comm.Sum(&squares)
	return squares.Value() / freedom(c), err
}

// freedom returns the number of degrees of freedom of the atoms.
func freedom(c *Config) float64 { return float64(axes * (c.Atoms() - 1)) }
