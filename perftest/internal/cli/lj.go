package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/studies/kernel"
	"github.com/gucx/gucx/perftest/internal/studies/lj"
)

// ljFlags are the flags of perftest lj.
type ljFlags struct {
	kernelFlags
	cells   string
	problem lj.Config
}

func (p Program) newLJ(args []string) *cobra.Command {
	s := ljFlags{kernelFlags: kernelFlags{own: p.Own, args: args}}
	cmd := s.command(&cobra.Command{
		Use:   "lj",
		Short: "Move Lennard-Jones atoms on ranks, as LAMMPS does",
		Long: `Compute the motion of Lennard-Jones atoms, as LAMMPS does, on ranks.

A crystal of atoms melts in a periodic box that is cut into a domain for each
rank; density, temperature, cutoff, skin and time step are those of LAMMPS'
benchmark in.lj. In a step a rank sends the positions of atoms near its faces
to its neighbors, edge after edge, and adds up over all ranks whether an atom
has moved by more than half of the skin. Then atoms migrate, and lists of
neighbors are made anew.

Transports take turns of steps. Their results must be equal, bit for bit, and
with --check also equal to that of one rank: exit status 3 otherwise. Energy
and pressure are as LAMMPS prints them.`,
		Example: `  perftest lj                              rc and rc_mlx5 on two ranks
  perftest lj --ranks 8 --cells 20x20x20 --check=false
  perftest lj --scaling weak --cells 6x6x6 --ranks 4
  perftest lj -x ud,ud_mlx5
  mpiexec -n 4 perftest lj -x sm`,
	})
	s.about, s.prepare = "Energy: of an atom, kinetic and potential, with the potential cut and not shifted.", s.prepareLJ
	f := cmd.Flags()
	f.StringVar(&s.cells, "cells", "10x10x10", "cells of the crystal in x, y and z, of four atoms each")
	f.Float64Var(&s.problem.Density, "density", 0.8442, "atoms in a unit of volume")
	f.Float64Var(&s.problem.Temperature, "temperature", 1.44, "initial temperature of the crystal")
	f.Float64Var(&s.problem.Cutoff, "cutoff", 2.5, "distance beyond which there is no force")
	f.Float64Var(&s.problem.Skin, "skin", 0.3, "radius of neighbor lists beyond the cutoff")
	f.Float64Var(&s.problem.TimeStep, "step", 0.005, "time step")
	f.Uint64Var(&s.problem.Seed, "seed", 1, "seed of velocities")
	return cmd
}

func (s *ljFlags) prepareLJ(ranks int) (string, error) {
	box, err := s.box(s.cells, len(s.problem.Cells), ranks)
	if err != nil {
		return "", err
	}
	s.problem.Cells = [3]int(box)
	if err := s.problem.Check(ranks); err != nil {
		return "", err
	}
	parts, err := s.problem.Parts(ranks)
	s.study.New = func(c *kernel.Comm) (kernel.Kernel, error) { return lj.New(s.problem, c) }
	return fmt.Sprintf("Lennard-Jones, %d atoms in %s cells, cut into %s", s.problem.Atoms(), boxText(box), boxText(parts)), err
}
