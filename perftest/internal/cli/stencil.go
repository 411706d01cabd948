package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/show/quantity"
	"github.com/gucx/gucx/perftest/internal/studies/stencil"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// stencilFlags are the flags of perftest stencil.
type stencilFlags struct {
	application
	hybrids   []string
	problem   stencil.Problem
	processes bool
}

func newStencil() *cobra.Command {
	var s stencilFlags
	cmd := &cobra.Command{
		Use:   "stencil",
		Short: "Run a 5-point stencil over each category of endpoints",
		Long: `Run a 5-point stencil on ranks with threads, over each category of endpoints.

Two nodes have as many ranks each, in a ring; a rank has rows of the grid, and
its threads divide the columns. A thread has two queue pairs, to the threads
with its columns above and below, and puts its part of the halo there in each
iteration: a message for each point, one work request in a call, with a
completion for each. It continues when the other threads of its rank and its
two neighbors have done the same. The grid is compared with a serial run. Rates
are puts of both nodes, resources those of one. Ranks are contexts of one
process, or processes with --processes. On a machine with fewer CPUs than
threads the rates show the costs of locks and calls, not the speed of a NIC;
--model predicts the latter.`,
		Example: `  perftest stencil                         16 threads: 16.1, 8.2, 4.4, 2.8, 1.16
  perftest stencil --hybrid 4.4 --rows 1024 --cols 1024
  perftest stencil --processes --hybrid 2.2
  perftest stencil --model connectx4       the study's figure`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.IntVar(&s.problem.Rows, "rows", 64, "rows of the grid")
	f.IntVar(&s.problem.Cols, "cols", 512, "columns of the grid")
	f.IntVar(&s.problem.Points, "points", 1, "points of a halo in a message")
	quantity.Count(f, &s.problem.Iterations, "iters", "n", 10, "iterations")
	f.StringSliceVar(&s.hybrids, "hybrid", []string{"16.1", "8.2", "4.4", "2.8", "1.16"}, "ranks.threads of a node")
	f.BoolVar(&s.processes, "processes", false, "each rank is a process of its own, on the shm fabric")
	s.bind(f)
	completeSharing(cmd)
	completeCategories(cmd)
	return cmd
}

// parseHybrid parses "ranks.threads".
func parseHybrid(text string) (ranks, threads int, err error) {
	r, t, ok := strings.Cut(text, ".")
	ranks, errRanks := strconv.Atoi(r)
	threads, errThreads := strconv.Atoi(t)
	if !ok || errRanks != nil || errThreads != nil || ranks < 1 || threads < 1 {
		return 0, 0, fmt.Errorf("hybrid %q: want ranks.threads, as 4.4", text)
	}
	return ranks, threads, nil
}

// parts checks the flags.
func (s *stencilFlags) parts() (parts []part, err error) {
	queues, err := s.check()
	if err != nil {
		return nil, err
	}
	if s.processes && (s.model != "" || s.fabric != string(softhca.FabricShm)) {
		return nil, errors.New("--processes needs the shm fabric, and no model")
	}
	rig, err := s.rig()
	if err != nil {
		return nil, err
	}
	for _, h := range s.hybrids {
		problem := s.problem
		if problem.Ranks, problem.Threads, err = parseHybrid(h); err != nil {
			return nil, err
		}
		if err := problem.Check(); err != nil {
			return nil, err
		}
		p := part{bench: &stencil.Bench{Rig: rig, Problem: problem}}
		if s.processes {
			p.bench = &stencil.Processes{Problem: problem, Start: starter(rankName)}
		}
		if p.study, err = s.study(queues); err != nil {
			return nil, err
		}
		p.study.Ranks, p.study.Threads = problem.Ranks, []int{problem.Threads}
		if err := p.study.Check(); err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func (s *stencilFlags) run(cmd *cobra.Command) error {
	s.modelDefaults(cmd.Flags(), &s.problem.Iterations, modelIterations)
	parts, err := s.parts()
	if err != nil {
		return &usageError{err}
	}
	return s.measure(cmd, parts, fmt.Sprintf("5-point stencil of %d x %d points, %d in a message, %d iterations",
		s.problem.Rows, s.problem.Cols, s.problem.Points, s.problem.Iterations))
}

// modelIterations are enough in virtual time.
const modelIterations = 5
