package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/measure/affinity"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/measure/tick"
	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// Defaults of the flags.
const (
	defaultRounds = 7
	defaultTime   = 150 * time.Millisecond
	// defaultLimit is a hundred times the duration of a run on an idle machine.
	defaultLimit = time.Minute
)

// options are the flags of the command.
type options struct {
	only, cpus, output string
	plan               plan
	limit              time.Duration
	list, quiet        bool
}

const longHelp = `Compare with UCX: run ucx_perftest (package ` + ucxPackage + `) and this
perftest in turns, on the same two CPUs, for the same test, size and data
layout. Layout "ucp" is UCP on both sides; UCX uses the UCX_TLS that --list
prints.

Before, between and after the two runs of a pair, a probe measures the time to
exchange a cache line between the two CPUs. A pair counts if its three probes
agree within a factor of 1.5. By the probes the CPUs are near each other
(--near) or far apart; each of the two phases has a row of its own. Pairs are
run until one row has --rounds pairs, at most three times as many. If no pair
counts, the row is called "moved" and has the other pairs. Figures are medians.
The ratio is ours divided by UCX's, the median over pairs. For times, which are
one way for ping-pongs, a small ratio is good, for rates and bandwidths a large
one. Other programs on the hardware threads of the same cores can halve the
speed for seconds, which disturbs the ratio of the best runs (Best) least.

On a shared machine, run it with a real-time priority (chrt -r 1), which both
sides inherit.

Exit status: 0 success, also if a goal is missed; 1 failure; 77 ucx_perftest is
missing.`

// Command returns "perftest compare-ucx".
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "compare-ucx",
		Short: "Compare with ucx_perftest on the same CPUs",
		Long:  longHelp,
		Example: `  perftest compare-ucx                               everything
  perftest compare-ucx --only '^sm/am' --rounds 3    active messages over sm
  perftest compare-ucx --list                        what there is`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.only, "only", "", "regular expression: only comparisons whose name matches, such as '^sm/am' or '/1048576/'")
	f.BoolVar(&o.list, "list", false, "list the comparisons and their goals, and run nothing")
	f.IntVar(&o.plan.Rounds, "rounds", defaultRounds, "pairs of runs that a row must have")
	f.DurationVar(&o.plan.Time, "time", defaultTime, "length of one run")
	f.Float64Var(&o.plan.Near, "near", defaultNear, "longest probe of CPUs that are near each other, in ns")
	f.DurationVar(&o.limit, "limit", defaultLimit, "time after which a run is given up")
	f.StringVarP(&o.cpus, "cpus", "c", "auto", "CPUs of initiator and target: 1,0; auto chooses two different ones")
	f.StringVarP(&o.output, "output", "o", sheet.Formats()[0], "output format: "+strings.Join(sheet.Formats(), ", "))
	f.BoolVarP(&o.quiet, "quiet", "q", false, "show no progress")
	complete.One(cmd, "output", sheet.Formats)
	complete.One(cmd, "only", caseNames)
	cmd.AddCommand(newSpin())
	return cmd
}

// check returns an error for invalid flags.
func (o *options) check() error {
	switch {
	case o.plan.Rounds < 1:
		return fmt.Errorf("%d rounds: at least 1", o.plan.Rounds)
	case o.plan.Time <= 0 || o.limit <= o.plan.Time:
		return fmt.Errorf("a run of %v within %v: want positive times, the second one longer", o.plan.Time, o.limit)
	case o.plan.Near <= 0:
		return fmt.Errorf("near CPUs at %v ns: want a positive time", o.plan.Near)
	}
	if _, err := choose(Cases(), o.only); err != nil {
		return err
	}
	if !o.list {
		if _, err := o.processors(); err != nil {
			return err
		}
	}
	return sheet.CheckFormat(o.output)
}

// processors returns two different CPUs.
func (o *options) processors() ([]int, error) {
	cpus, err := affinity.Pair(o.cpus)
	if err == nil && (len(cpus) < 2 || cpus[0] == cpus[1]) {
		err = errTwoCPUs
	}
	return cpus, err
}

var errTwoCPUs = errors.New("a comparison needs two different CPUs: see -c")

func (o *options) run(cmd *cobra.Command) error {
	cases, err := choose(Cases(), o.only)
	if err != nil {
		return err
	}
	if o.list {
		return writeList(cmd.OutOrStdout(), cases)
	}
	cpus, err := o.processors()
	if err != nil {
		return err
	}
	r, err := o.comparer(cpus)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	conditions := Conditions{Machine: machine.Describe(), Commit: machine.Commit(ctx), UCX: ucxVersion(ctx),
		CPUs: cpus, Rounds: o.plan.Rounds, RunNS: o.plan.Time.Nanoseconds(), NearNS: o.plan.Near, Agreement: agreement}
	rows, err := o.spinning(ctx, cmd, r, cases, cpus)
	if len(rows) == 0 {
		return err
	}
	if err = errors.Join(err, failures(rows)); err != nil {
		conditions.Incomplete = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return errors.Join(err, write(cmd.OutOrStdout(), o.output, conditions, rows))
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
		probe: func() (float64, error) { return machine.Probe(clock, cpus[0], cpus[1]) }}, nil
}

// spinning runs the cases while spinners keep the CPUs from halting. When the context ends it
// returns the results so far.
func (o *options) spinning(ctx context.Context, cmd *cobra.Command, r *comparer, cases []Case, cpus []int) (rows []Row, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stop, err := startSpinners(ctx, self, strings.Fields(cmd.CommandPath())[1:], cpus)
	if err != nil {
		return nil, err
	}
	defer stop()
	r.listener = newListener(os.Stderr, o.quiet, o.plan, len(cases))
	for _, c := range cases {
		more, err := r.compare(ctx, c)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// failures returns an error if a case failed.
func failures(rows []Row) error {
	var errs []error
	for i := range rows {
		if r := &rows[i]; r.Failed != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Case, r.Failed))
		}
	}
	return errors.Join(errs...)
}
