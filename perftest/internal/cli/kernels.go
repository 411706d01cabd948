package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/quantity"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/kernel"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpgroup"
	"github.com/gucx/gucx/ucp/ucpgroup/pmi"
)

// kernelFlags are the flags of commands that run a kernel on ranks.
type kernelFlags struct {
	own        gucx.Own
	args       []string
	study      kernel.Study
	ranks      int
	transports []string
	scaling    string
	together   bool
	output     string
	quiet      bool

	// about describes the values of results, and prepare sets the kernel for a number of ranks and
	// describes the problem.
	about   string
	prepare func(ranks int) (problem string, err error)
}

// How a problem grows with the number of ranks.
const (
	strong = "strong" // not at all
	weak   = "weak"   // each rank has a problem of the given size
)

// command adds the flags of kernels to a command that has its texts, and makes it run the kernel.
func (s *kernelFlags) command(cmd *cobra.Command) *cobra.Command {
	cmd.Args = usage(cobra.NoArgs)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return s.run(cmd) }
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&s.ranks, "ranks", 2, "ranks to start; ignored under a process manager")
	f.StringSliceVarP(&s.transports, "transport", "x", []string{"rc", "rc_mlx5"}, "transports to compare, which alternate")
	f.StringVar(&s.scaling, "scaling", strong, "strong: the problem size is that of all ranks; weak: of each rank")
	quantity.Count(f, &s.study.Iterations, "iters", "n", 200, "iterations of each transport")
	quantity.Count(f, &s.study.Warmup, "warmup", "w", 5, "warm-up iterations, not timed")
	f.IntVar(&s.study.Turn, "turn", 5, "successive iterations of one transport")
	f.BoolVar(&s.study.Check, "check", true, "compute everything on one rank too, and compare")
	f.BoolVar(&s.together, "in-process", false, "ranks are goroutines of one process")
	f.StringVarP(&s.output, "output", "o", sheet.Formats()[0], "output format: "+strings.Join(sheet.Formats(), ", "))
	f.BoolVarP(&s.quiet, "quiet", "q", false, "show no progress")
	complete.One(cmd, "scaling", func() []string { return []string{strong, weak} })
	complete.One(cmd, "output", sheet.Formats)
	return cmd
}

// check checks the flags for a number of ranks.
func (s *kernelFlags) check(ranks int) (problem string, err error) {
	if ranks < 1 || ranks > ucpgroup.MaxRanks {
		return "", fmt.Errorf("%d ranks: want 1 to %d", ranks, ucpgroup.MaxRanks)
	}
	if s.scaling != strong && s.scaling != weak {
		return "", fmt.Errorf("scaling %q: there are %s, %s", s.scaling, strong, weak)
	}
	if len(s.transports) == 0 {
		return "", errors.New("no transport")
	}
	for i, name := range s.transports {
		if slices.Contains(s.transports[:i], name) {
			return "", fmt.Errorf("duplicate transport %s", name)
		}
	}
	if err := s.study.CheckFlags(); err != nil {
		return "", err
	}
	if problem, err = s.prepare(ranks); err != nil {
		return "", err
	}
	return problem, sheet.CheckFormat(s.output)
}

// config returns the configuration of the environment, with one transport.
func (s *kernelFlags) config(transport string) (gucx.Config, error) {
	return gucx.FromEnv(append(os.Environ(), "GUCX_TLS="+ucp.Exact(transport)), s.own)
}

// checkTransports rejects transports that cannot be opened.
func (s *kernelFlags) checkTransports() error {
	for _, name := range s.transports {
		c, err := s.config(name)
		if err == nil {
			err = checkConfig(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *kernelFlags) run(cmd *cobra.Command) error {
	boot, err := pmi.FromEnv()
	switch {
	case err == nil:
		return s.runManaged(cmd, boot)
	case !errors.Is(err, pmi.ErrAbsent):
		return err
	}
	problem, err := s.check(s.ranks)
	if err = errors.Join(err, s.checkTransports()); err != nil {
		return &usageError{err}
	}
	if s.together {
		return runTogether(cmd.Context(), s.ranks, func(ctx context.Context, b ucpgroup.Bootstrap) error { return s.runRank(ctx, cmd, b, problem) })
	}
	return startRanks(cmd, s.args, s.ranks)
}

// runManaged runs a rank of a process manager.
func (s *kernelFlags) runManaged(cmd *cobra.Command, boot *pmi.Client) error {
	problem, err := s.check(boot.Size())
	if err != nil {
		return &usageError{errors.Join(err, boot.Abort(exitUsage))}
	}
	if err := s.runRank(cmd.Context(), cmd, boot, problem); err != nil {
		return &managedError{boot.Rank(), err}
	}
	return leaveJob(boot)
}

// runRank runs one rank. Rank 0 shows progress and results.
func (s *kernelFlags) runRank(ctx context.Context, cmd *cobra.Command, b ucpgroup.Bootstrap, problem string) (err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	var groups []*ucpgroup.Group
	var ways []kernel.Way
	for _, name := range s.transports {
		cfg, err := s.config(name)
		if err != nil {
			return err
		}
		g, err := joinGroup(ctx, cfg, name, b, &undo)
		if err != nil {
			return err
		}
		groups, ways = append(groups, g), append(ways, kernel.Way{Transport: name, Comm: g.World()})
	}
	m := meter.New(os.Stderr, s.study.Steps(len(ways)), s.quiet || b.Rank() != 0)
	defer m.Close()
	rows, err := s.study.Run(ctx, ways, func(transport string) { m.Step(transport, 0) })
	m.Close()
	failed := err
	if b.Rank() == 0 && err == nil {
		err = s.write(cmd, rows, problem)
	}
	return errors.Join(err, kernel.Leave(ctx, groups, failed))
}

func (s *kernelFlags) write(cmd *cobra.Command, rows []kernel.Row, problem string) error {
	c := kernelConditions{Machine: machine.Describe(), Commit: machine.Commit(cmd.Context()), Problem: problem, Scaling: s.scaling,
		Ranks: rows[0].Ranks, Iterations: s.study.Iterations, Warmup: s.study.Warmup, Turn: s.study.Turn, Together: s.together}
	return kernel.Sheet(c, append(c.lines(), kernel.ResultLines(rows)...), s.about, rows).Write(cmd.OutOrStdout(), s.output)
}

// kernelConditions is the first object of JSON output, and what tables begin with.
type kernelConditions struct {
	Machine    result.Machine `json:"machine"`
	Commit     string         `json:"commit"`
	Problem    string         `json:"problem"`
	Scaling    string         `json:"scaling"`
	Ranks      int            `json:"ranks"`
	Iterations int            `json:"iterations"`
	Warmup     int            `json:"warmup"`
	Turn       int            `json:"turn"`
	Together   bool           `json:"in_process"`
}

func (c kernelConditions) lines() []string {
	are := "processes"
	if c.Together {
		are = "goroutines of one process"
	}
	return append([]string{
		fmt.Sprintf("%s, GOMAXPROCS %d", c.Machine, c.Machine.GOMAXPROCS),
		fmt.Sprintf("gucx %s; %d ranks that are %s", c.Commit, c.Ranks, are),
		c.Problem,
		fmt.Sprintf("%d iterations after %d, in turns of %d", c.Iterations, c.Warmup, c.Turn),
	}, ranksConditions{Machine: c.Machine, Ranks: c.Ranks}.sharedCPUs()...)
}

// parseBox reads the edges of a box: "8x8x8x16".
func parseBox(text string, edges int) (box []int, err error) {
	for part := range strings.SplitSeq(text, "x") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > mostEdge {
			return nil, fmt.Errorf("size %q: want %d numbers from 1 to %d, as 8x8", text, edges, mostEdge)
		}
		box = append(box, n)
	}
	if len(box) != edges {
		return nil, fmt.Errorf("size %q: want %d numbers, with an x between them", text, edges)
	}
	return box, nil
}

// mostEdge limits products of edges to less than 2^63.
const mostEdge = 10_000

// box returns the edges of the box of all ranks.
func (s *kernelFlags) box(text string, edges, ranks int) ([]int, error) {
	box, err := parseBox(text, edges)
	if err == nil && s.scaling == weak {
		box = kernel.Grow(box, ranks)
	}
	return box, err
}

// boxText returns the text of a box, for people.
func boxText(box []int) string {
	texts := make([]string, len(box))
	for i, n := range box {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, " x ")
}
