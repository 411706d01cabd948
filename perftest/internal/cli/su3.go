package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/studies/kernel"
	"github.com/gucx/gucx/perftest/internal/studies/su3"
)

// su3Flags are the flags of perftest su3.
type su3Flags struct {
	kernelFlags
	size    string
	problem su3.Config
}

func (p Program) newSU3(args []string) *cobra.Command {
	s := su3Flags{kernelFlags: kernelFlags{own: p.Own, args: args}}
	cmd := s.command(&cobra.Command{
		Use:   "su3",
		Short: "Solve equations of quarks on ranks, as MILC does",
		Long: `Solve the equations of quarks on a lattice, as MILC does, on ranks.

Conjugate gradients for (m² - D²) x = b, with the staggered D of a lattice of
four dimensions and a random SU(3) matrix on each link. An iteration is two
products with D, each with a message to and from both neighbors in all
directions in which the lattice is cut, and two sums over all ranks. Sites
without neighbors on other ranks are computed while messages are under way. A
solution with a residual that is small enough is followed by the next equation.

Transports take turns of iterations. Their results must be equal, bit for bit,
and with --check also equal to that of one rank: exit status 3 otherwise. The
residual is computed from the solution.`,
		Example: `  perftest su3                             rc and rc_mlx5 on two ranks
  perftest su3 --ranks 8 --lattice 16x16x16x16 --check=false
  perftest su3 --scaling weak --lattice 4x4x4x8 --ranks 4
  perftest su3 -x ud,ud_mlx5
  mpiexec -n 4 perftest su3 -x sm`,
	})
	s.about, s.prepare = "Residual: of the present equation, to its right side.", s.prepareSU3
	f := cmd.Flags()
	f.StringVar(&s.size, "lattice", "8x8x8x8", "sites in x, y, z and t")
	f.Float64Var(&s.problem.Mass, "mass", 0.2, "mass of the quark; a small one needs more iterations for a solution")
	f.Float64Var(&s.problem.Target, "residual", 1e-8, "residual of a solution, relative to the right-hand side")
	f.Float64Var(&s.problem.Roughness, "roughness", 1, "roughness of the links; 0: unit matrices")
	f.Uint64Var(&s.problem.Seed, "seed", 1, "seed of links and right-hand sides")
	return cmd
}

func (s *su3Flags) prepareSU3(ranks int) (string, error) {
	box, err := s.box(s.size, len(s.problem.Size), ranks)
	if err != nil {
		return "", err
	}
	s.problem.Size = [4]int(box)
	if err := s.problem.Check(ranks); err != nil {
		return "", err
	}
	parts, err := su3.Parts(s.problem.Size, ranks)
	s.study.New = func(c *kernel.Comm) (kernel.Kernel, error) { return su3.New(s.problem, c) }
	return fmt.Sprintf("SU(3), %s sites, cut into %s, mass %v", boxText(box), boxText(parts), s.problem.Mass), err
}
