package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/sp"
	"github.com/gucx/gucx/ucp/ucpgroup"
	"github.com/gucx/gucx/ucp/ucpgroup/pmi"
)

// spFlags are the flags of perftest sp.
type spFlags struct {
	spModelFlags
	own       gucx.Own
	args      []string // of the program
	class     string
	ranks     int
	protocols []string
	transport string
	together  bool
	costs     bool
	output    string
	quiet     bool
}

func (p Program) newSP(args []string) *cobra.Command {
	s := spFlags{own: p.Own, args: args}
	cmd := &cobra.Command{
		Use:   "sp",
		Short: "Run the SP benchmark of the NAS Parallel Benchmarks on ranks",
		Long: `Run the SP benchmark of the NAS Parallel Benchmarks on ranks.

Navier-Stokes equations on a cube, implicit in time: sweeps along x, y and z
solve lines with five diagonals. The cube is cut for a square number of ranks
so that each has work in all stages of a sweep; receives are posted before work
that does not need their data, and completed after it. Classes are S, W, A, B
and C, of 12, 36, 64, 102 and 162 points in each direction. The result is
compared with the published one: exit status 3 if it differs.

Ranks are processes that perftest starts, or those of mpiexec or srun.
Rendezvous begins at 8 KiB, as in the study of TupleQ. On a machine with fewer
CPUs than ranks the times show the costs of messages, not their overlap.`,
		Example: `  perftest sp                              class S on 4 ranks, each protocol
  perftest sp --class A --ranks 9 -x rc
  perftest sp --class W --ranks 1 --protocols am
  mpiexec -n 4 perftest sp -x rc           ranks of a process manager with PMI
  perftest sp --model connectxddr          the figure of the TupleQ paper
  perftest sp --class A --costs            costs of its computation here`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.class, "class", "S", "size of the problem: "+strings.Join(classNames(), ", "))
	f.IntVar(&s.ranks, "ranks", 4, "ranks, a square number")
	f.StringSliceVar(&s.protocols, "protocols", sp.Protocols().Names(), "protocols of UCP for messages, one after the other")
	f.StringVarP(&s.transport, "transport", "x", "", "transports, in the syntax of GUCX_TLS, of the protocols other than tupleq and tupleq_copy, which use xrc")
	f.BoolVar(&s.together, "in-process", false, "ranks are goroutines of one process, each with a context and a worker of its own")
	f.BoolVar(&s.costs, "costs", false, "measure the costs of a rank's computation, by type, without messages, as input for models")
	f.StringVarP(&s.output, "output", "o", sheet.Formats()[0], "output format: "+strings.Join(sheet.Formats(), ", "))
	f.BoolVarP(&s.quiet, "quiet", "q", false, "show no progress")
	s.spModelFlags.bind(cmd)
	complete.One(cmd, "class", classNames)
	complete.List(cmd, "protocols", sp.Protocols().Names)
	complete.One(cmd, "output", sheet.Formats)
	return cmd
}

func classNames() (names []string) {
	for _, c := range sp.Classes() {
		names = append(names, c.Name)
	}
	return names
}

// study checks the flags.
func (s *spFlags) study() (study *sp.Study, err error) {
	study = &sp.Study{Config: s.config}
	if study.Class, err = sp.ParseClass(s.class); err != nil {
		return nil, err
	}
	for _, name := range s.protocols {
		p, err := sp.Protocols().Find(name)
		if err != nil {
			return nil, err
		}
		study.Protocols = append(study.Protocols, p)
	}
	if len(study.Protocols) == 0 {
		return nil, errors.New("no protocol")
	}
	if err := study.Check(s.ranks); err != nil {
		return nil, err
	}
	if _, err := s.config(nil); err != nil {
		return nil, err
	}
	return study, sheet.CheckFormat(s.output)
}

// config returns the configuration of the environment, the flags and a protocol, in increasing precedence.
func (s *spFlags) config(env []string) (gucx.Config, error) {
	environ := os.Environ()
	if s.transport != "" {
		environ = append(environ, "GUCX_TLS="+s.transport)
	}
	return gucx.FromEnv(append(environ, env...), s.own)
}

// checkTransports rejects transports that cannot be opened.
func (s *spFlags) checkTransports() error {
	c, err := s.config(nil)
	if err != nil {
		return err
	}
	return checkConfig(c)
}

// meaningless is the flags that have no effect with another flag.
var meaningless = []struct {
	chosen bool // whether the flag is given
	flag   string
	others []string
}{
	{true, "model", []string{"transport", "in-process", "costs"}},
	{false, "model", []string{"nodes", "factor", "steps", "seed"}},
	{true, "costs", []string{"transport", "in-process", "protocols"}},
}

// checkFlags rejects flags that would have no effect.
func checkFlags(f *pflag.FlagSet) error {
	for _, m := range meaningless {
		if f.Changed(m.flag) != m.chosen {
			continue
		}
		for _, name := range m.others {
			if f.Changed(name) {
				return fmt.Errorf("--%s cannot be used %s --%s", name, map[bool]string{true: "with", false: "without"}[m.chosen], m.flag)
			}
		}
	}
	return nil
}

func (s *spFlags) run(cmd *cobra.Command) error {
	if err := checkFlags(cmd.Flags()); err != nil {
		return &usageError{err}
	}
	if s.model != "" {
		return s.predict(cmd)
	}
	boot, err := pmi.FromEnv()
	switch {
	case err == nil:
		return s.runManaged(cmd, boot)
	case !errors.Is(err, pmi.ErrAbsent):
		return err
	}
	study, err := s.study()
	if err != nil {
		return &usageError{err}
	}
	if s.costs {
		return s.measureCosts(cmd, study)
	}
	if err := s.checkTransports(); err != nil {
		return &usageError{err}
	}
	if s.together {
		return s.runTogether(cmd, study)
	}
	return startRanks(cmd, s.args, s.ranks)
}

// runManaged runs a rank of a process manager, which sets the number of ranks.
func (s *spFlags) runManaged(cmd *cobra.Command, boot *pmi.Client) error {
	s.ranks = boot.Size()
	study, err := s.study()
	if err != nil {
		return &usageError{errors.Join(err, boot.Abort(exitUsage))}
	}
	if err := s.runRank(cmd, study, boot); err != nil {
		return &managedError{boot.Rank(), err}
	}
	return leaveJob(boot)
}

// runRank runs one rank. The first one shows progress and results.
func (s *spFlags) runRank(cmd *cobra.Command, study *sp.Study, boot ucpgroup.Bootstrap) error {
	first := boot.Rank() == 0
	step, done := s.progress(study, !first)
	defer done()
	rows, err := study.Run(cmd.Context(), boot, step)
	done()
	if first {
		err = s.write(cmd, study, rows, "processes", err)
	}
	return err
}

// progress shows time steps on the standard error.
func (s *spFlags) progress(study *sp.Study, hidden bool) (step func(protocol string), done func()) {
	m := meter.New(os.Stderr, len(study.Protocols)*study.Class.Steps, s.quiet || hidden)
	return func(protocol string) { m.Step(protocol, 0) }, m.Close
}

// write writes the results of ranks. It returns err, the reason if they are incomplete.
func (s *spFlags) write(cmd *cobra.Command, study *sp.Study, rows []sp.Row, kind string, err error) error {
	if len(rows) == 0 {
		return err
	}
	c := s.conditions(cmd, study, kind, err)
	return errors.Join(err, sp.Sheet(c, c.lines(), rows).Write(cmd.OutOrStdout(), s.output))
}

// costSteps is large enough that some steps have no noise.
const costSteps = 30

// measureCosts measures the costs of the computation of a rank.
func (s *spFlags) measureCosts(cmd *cobra.Command, study *sp.Study) error {
	m := meter.New(os.Stderr, costSteps+1, s.quiet)
	c, err := sp.Measure(cmd.Context(), study.Class, s.ranks, costSteps, func() { m.Step("costs", 0) })
	m.Close()
	if err != nil {
		return &usageError{err}
	}
	head := s.conditions(cmd, study, strconv.Itoa(s.ranks)+", of which one computes alone", nil)
	return sp.CostSheet(head, head.lines(), c).Write(cmd.OutOrStdout(), s.output)
}

// transports returns the transports of ranks.
func (s *spFlags) transports() string {
	if s.transport != "" {
		return s.transport
	}
	return os.Getenv("GUCX_TLS")
}

// runTogether runs a study with goroutines.
func (s *spFlags) runTogether(cmd *cobra.Command, study *sp.Study) error {
	step, done := s.progress(study, false)
	defer done()
	var rows []sp.Row // of the first rank; all ranks have the same
	err := runTogether(cmd.Context(), s.ranks, func(ctx context.Context, b ucpgroup.Bootstrap) (err error) {
		if b.Rank() > 0 {
			_, err = study.Run(ctx, b, nil)
			return err
		}
		rows, err = study.Run(ctx, b, step)
		return err
	})
	done()
	return s.write(cmd, study, rows, "goroutines", err)
}

// conditions returns the conditions of results. If err is not nil, they are incomplete.
func (s *spFlags) conditions(cmd *cobra.Command, study *sp.Study, kind string, err error) spConditions {
	return spConditions{Partial: partial(cmd.Context(), err), Machine: machine.Describe(), Commit: machine.Commit(cmd.Context()), Transports: s.transports(), Ranks: kind,
		Grid: study.Class.Grid, Steps: study.Class.Steps}
}

// spConditions is the first object of JSON output, and what tables begin with.
type spConditions struct {
	Machine    result.Machine `json:"machine"`
	Commit     string         `json:"commit"`
	Transports string         `json:"transports,omitempty"`
	Ranks      string         `json:"ranks"` // description of the ranks
	Grid       int            `json:"grid"`
	Steps      int            `json:"steps"`
	result.Partial
}

func (c spConditions) lines() []string {
	m, over := c.Machine, c.Transports
	if over == "" {
		over = "any"
	}
	return append([]string{
		fmt.Sprintf("%s, GOMAXPROCS %d", m, m.GOMAXPROCS),
		fmt.Sprintf("gucx %s; transports %s; ranks are %s", c.Commit, over, c.Ranks),
		fmt.Sprintf("NAS SP, %d x %d x %d points, %d steps", c.Grid, c.Grid, c.Grid, c.Steps),
	}, c.Lines()...)
}
