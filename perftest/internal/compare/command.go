package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/affinity"
	"github.com/gucx/gucx/perftest/internal/machine"
	"github.com/gucx/gucx/perftest/internal/report"
	"github.com/gucx/gucx/perftest/internal/tick"
)

// Defaults of the flags.
const (
	defaultRounds = 7
	defaultTime   = 150 * time.Millisecond
	// defaultLimit is a hundred times what a run takes on a machine to itself.
	defaultLimit = time.Minute
)

// options are the flags of the command.
type options struct {
	only, cpus, output string
	plan               plan
	near               float64
	limit              time.Duration
	list, quiet        bool
}

const longHelp = `Compare with UCX: run ucx_perftest (package ` + ucxPackage + `) and this perftest in
turns, on the same two processors, for the same test, size and data layout.

Each pair of runs is measured with a probe before, between and after: how long a
cache line takes from one processor to the other. Pairs count where no probe is
longer than twice the best one seen, and both runs lie within 1.35 times the
best one of their side; pairs are run until --rounds of them count, at most three
times as many. Figures are
medians with their range. The ratio is ours over UCX's: of times, one way for
ping-pongs, it should be small, of rates and bandwidths large.

On a machine that others use, run it with a real-time priority (chrt -r 1): both
sides inherit it.

Exit status: 0 well, also where a goal is missed; 1 failed; 77 ucx_perftest is missing.`

// Command returns "perftest compare-ucx".
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "compare-ucx",
		Short: "Compare with ucx_perftest on the same processors",
		Long:  longHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.only, "only", "", "regular expression: only comparisons whose name matches, such as '^sm/am' or '/1048576/'")
	f.BoolVar(&o.list, "list", false, "list the comparisons and their goals, and run nothing")
	f.IntVar(&o.plan.Rounds, "rounds", defaultRounds, "pairs of runs that must count")
	f.DurationVar(&o.plan.Time, "time", defaultTime, "length of one run")
	f.Float64Var(&o.near, "near", 0, "largest probe of a pair that counts, in ns; 0 for twice the best one seen")
	f.DurationVar(&o.limit, "limit", defaultLimit, "time after which a run is given up")
	f.StringVarP(&o.cpus, "cpus", "c", "auto", "processors of initiator and target: 1,0; auto takes two different ones")
	f.StringVarP(&o.output, "output", "o", report.Formats()[0], "form of the results: "+strings.Join(report.Formats(), ", "))
	f.BoolVarP(&o.quiet, "quiet", "q", false, "show no progress")
	cmd.AddCommand(newSpin())
	return cmd
}

// check refuses flags that make no sense.
func (o *options) check() error {
	switch {
	case o.plan.Rounds < 1:
		return fmt.Errorf("%d rounds: at least 1", o.plan.Rounds)
	case o.plan.Time <= 0 || o.limit <= o.plan.Time:
		return fmt.Errorf("a run of %v within %v: want positive times, the second the longer", o.plan.Time, o.limit)
	}
	return report.CheckFormat(o.output)
}

var errTwoCPUs = errors.New("a comparison needs two different processors: see -c")

func (o *options) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	cases, err := choose(Cases(), o.only)
	if err != nil {
		return err
	}
	if o.list {
		return writeList(cmd.OutOrStdout(), cases)
	}
	cpus, err := affinity.Pair(o.cpus)
	if err != nil {
		return err
	}
	if len(cpus) < 2 || cpus[0] == cpus[1] {
		return errTwoCPUs
	}
	r, err := o.comparer(cpus)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	conditions := Conditions{Machine: machine.Describe(), Commit: machine.Commit(ctx), UCX: ucxVersion(ctx),
		CPUs: cpus, Rounds: o.plan.Rounds, RunNS: o.plan.Time.Nanoseconds(), Spread: spread}
	results, err := o.spinning(ctx, cmd, r, cases, cpus)
	if len(results) == 0 {
		return err
	}
	conditions.NearNS = r.phase.near()
	return errors.Join(err, write(cmd.OutOrStdout(), o.output, conditions, results), failures(results))
}

// comparer prepares both sides.
func (o *options) comparer(cpus []int) (*comparer, error) {
	theirs, err := findUCX(cpus[0], cpus[1], o.limit)
	if err != nil {
		return nil, err
	}
	own, err := findOurs(cpus[0], cpus[1], o.limit)
	if err != nil {
		return nil, err
	}
	clock, err := tick.Calibrate()
	if err != nil {
		return nil, err
	}
	return &comparer{plan: o.plan, ucx: theirs, ours: own,
		phase: &phase{limit: o.near, probe: func() (float64, error) { return machine.Probe(clock, cpus[0], cpus[1]) }}}, nil
}

// spinning runs the cases while spinners keep the processors awake. When the
// context ends it returns what there is until then.
func (o *options) spinning(ctx context.Context, cmd *cobra.Command, r *comparer, cases []Case, cpus []int) ([]Summary, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stop, err := startSpinners(ctx, self, strings.Fields(cmd.CommandPath())[1:], cpus)
	if err != nil {
		return nil, err
	}
	defer stop()
	line := newLine(os.Stderr, o.quiet, o.plan.Rounds)
	defer line.clear()
	r.step = line.show
	if err := r.phase.learn(ctx); err != nil {
		return nil, err
	}
	var results []Summary
	for _, c := range cases {
		s, err := r.compare(ctx, c)
		if err != nil {
			return results, err
		}
		results = append(results, s)
	}
	return results, nil
}

// failures is an error if a case failed.
func failures(results []Summary) error {
	var errs []error
	for _, s := range results {
		if s.Failed != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Case, s.Failed))
		}
	}
	return errors.Join(errs...)
}

// line is one line of progress on a terminal, rewritten after each run.
type line struct {
	w      io.Writer // nil to show nothing
	rounds int
}

func newLine(f *os.File, quiet bool, rounds int) *line {
	if quiet || !machine.IsTerminal(f) {
		return &line{}
	}
	return &line{w: f, rounds: rounds}
}

// clearLine goes to the first column and erases to the end (ECMA-48, EL).
const clearLine = "\r\x1b[K"

func (l *line) show(c Case, kept int, p Pair) {
	if l.w == nil {
		return
	}
	// What cannot be shown is no reason to fail.
	_, _ = fmt.Fprintf(l.w, "%s%s: %d of %d; ucx %.1f ns, gucx %.1f ns, probe %.0f ns",
		clearLine, c, kept, l.rounds, p.UCXNS, p.OursNS, p.ProbeNS)
}

func (l *line) clear() {
	if l.w != nil {
		_, _ = io.WriteString(l.w, clearLine)
	}
}
