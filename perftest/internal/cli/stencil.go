package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/endpoints"
	"github.com/gucx/gucx/perftest/internal/msgrate"
	"github.com/gucx/gucx/perftest/internal/stencil"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// stencilFlags are the flags of perftest stencil.
type stencilFlags struct {
	sharing
	hybrids    []string
	categories []string
	cq         int
	bench      stencil.Bench
}

func newStencil() *cobra.Command {
	var s stencilFlags
	cmd := &cobra.Command{
		Use:   "stencil",
		Short: "Run a 5-point stencil on ranks with threads, over each category of endpoints",
		Long: `Run a 5-point stencil on ranks with threads, over each category of endpoints.

Two nodes have as many ranks each, in a line; a rank has rows of the grid, and its
threads divide the columns. A thread has two queue pairs, to the threads with its columns
above and below, and puts its part of the halo there in each iteration: one work
request in a call, with a completion for each. The grid is compared with a serial
run. Rates are puts of both nodes, resources those of one. Ranks are contexts of one
process, and lie on the shm fabric.`,
		Example: `  perftest stencil                         sixteen threads as 16.1, 8.2, 4.4, 2.8 and 1.16
  perftest stencil --hybrid 4.4 --rows 1024 --cols 1024`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.IntVar(&s.bench.Rows, "rows", 64, "rows of the grid")
	f.IntVar(&s.bench.Cols, "cols", 64, "columns of the grid")
	f.IntVarP(&s.bench.Iterations, "iters", "n", 200, "iterations")
	f.StringSliceVar(&s.hybrids, "hybrid", []string{"16.1", "8.2", "4.4", "2.8", "1.16"}, "ranks.threads of a node")
	s.bindCommon(f)
	_ = f.MarkHidden("fabric") // the loop fabric does not connect ranks
	f.StringSliceVar(&s.categories, "categories", categoryNames(), "categories to compare")
	f.IntVar(&s.cq, "cq", 1, "threads that share a completion queue, where their context is shared")
	return cmd
}

// parseHybrid reads "ranks.threads".
func parseHybrid(text string) (ranks, threads int, err error) {
	r, t, ok := strings.Cut(text, ".")
	ranks, errRanks := strconv.Atoi(r)
	threads, errThreads := strconv.Atoi(t)
	if !ok || errRanks != nil || errThreads != nil || ranks < 1 || threads < 1 {
		return 0, 0, fmt.Errorf("hybrid %q: want ranks.threads, as 4.4", text)
	}
	return ranks, threads, nil
}

// part is the study of one split into ranks and threads.
type part struct {
	study endpoints.Study
	bench stencil.Bench
}

// parts checks the flags.
func (s *stencilFlags) parts() (parts []part, err error) {
	queues, err := s.check()
	if err != nil {
		return nil, err
	}
	if s.fabric != string(softhca.FabricShm) {
		return nil, fmt.Errorf("fabric %q does not connect ranks", s.fabric)
	}
	var categories []endpoint.Category
	if categories, err = parseCategories(s.categories); err != nil {
		return nil, err
	}
	for _, h := range s.hybrids {
		p := part{bench: s.bench, study: endpoints.Study{Base: msgrate.Config{Inline: true}, Queues: queues,
			Categories: categories, CQ: s.cq, Rounds: s.rounds}}
		if p.bench.Ranks, p.bench.Threads, err = parseHybrid(h); err != nil {
			return nil, err
		}
		if err := p.bench.Check(); err != nil {
			return nil, err
		}
		p.bench.Rig = newRealTime(softhca.FabricShm)
		p.study.Ranks, p.study.Threads = p.bench.Ranks, []int{p.bench.Threads}
		parts = append(parts, p)
	}
	return parts, nil
}

func (s *stencilFlags) run(cmd *cobra.Command) error {
	parts, err := s.parts()
	if err != nil {
		return &usageError{err}
	}
	step, done := s.progress(len(parts) * len(s.categories))
	defer done()
	var rows []endpoints.Row
	for i := range parts {
		more, err := parts[i].study.Run(cmd.Context(), &parts[i].bench, step)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	done()
	c := s.conditions(cmd.Context())
	c.Problem = fmt.Sprintf("5-point stencil of %d x %d points, %d iterations", s.bench.Rows, s.bench.Cols, s.bench.Iterations)
	return s.writeRows(cmd, c, rows)
}
