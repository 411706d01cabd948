package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/sp"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

// spFlags are the flags of perftest sp.
type spFlags struct {
	spModelFlags
	own       gucx.Own
	class     string
	ranks     int
	protocols []string
	transport string
	output    string
	quiet     bool
}

func (p Program) newSP() *cobra.Command {
	s := spFlags{own: p.Own}
	cmd := &cobra.Command{
		Use:   "sp",
		Short: "Run the SP benchmark of the NAS Parallel Benchmarks on ranks",
		Long: `Run the SP benchmark of the NAS Parallel Benchmarks on ranks.

Navier-Stokes equations on a cube, implicit in time: sweeps along x, y and z solve lines
with five diagonals. The cube is cut for a square number of ranks so that each has work in all
stages of a sweep; receives are posted before the work that their data is not needed
for, and waited for behind it. Classes are S, W, A, B and C, of 12, 36, 64, 102 and 162 points in each
direction. The result is compared with the published one: exit status 3 if it differs.

Ranks are goroutines of this process, each with a context and a worker of its own. Rendezvous
begins at 8 KiB, as in the study of TupleQ. On a machine with fewer processors than
ranks times show what messages cost, not what they hide.`,
		Example: `  perftest sp                              class S on 4 ranks, each protocol
  perftest sp --class A --ranks 9 -x rc
  perftest sp --class W --ranks 1 --protocols am
  perftest sp --model connectxddr          the figure of the TupleQ paper`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.class, "class", "S", "size of the problem: "+strings.Join(classNames(), ", "))
	f.IntVar(&s.ranks, "ranks", 4, "ranks, a square number")
	f.StringSliceVar(&s.protocols, "protocols", protocolNames(), "protocols of UCP for messages, one after the other")
	f.StringVarP(&s.transport, "transport", "x", "", "transports, as GUCX_TLS has them; that if empty")
	f.StringVarP(&s.output, "output", "o", sheet.Formats()[0], "form of the results: "+strings.Join(sheet.Formats(), ", "))
	f.BoolVarP(&s.quiet, "quiet", "q", false, "show no progress")
	s.spModelFlags.bind(cmd)
	complete.One(cmd, "class", classNames)
	complete.List(cmd, "protocols", protocolNames)
	complete.One(cmd, "output", sheet.Formats)
	return cmd
}

func classNames() (names []string) {
	for _, c := range sp.Classes() {
		names = append(names, c.Name)
	}
	return names
}

func protocolNames() (names []string) {
	for _, p := range sp.Protocols() {
		names = append(names, p.Name)
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
		p, err := sp.ParseProtocol(name)
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
	return study, sheet.CheckFormat(s.output)
}

// config is what the environment, the flags and a protocol say.
func (s *spFlags) config(env []string) (gucx.Config, error) {
	environ := os.Environ()
	if s.transport != "" {
		environ = append(environ, "GUCX_TLS="+s.transport)
	}
	return gucx.FromEnv(append(environ, env...), s.own)
}

func (s *spFlags) run(cmd *cobra.Command) error {
	if s.model != "" {
		return s.predict(cmd)
	}
	study, err := s.study()
	if err != nil {
		return &usageError{err}
	}
	if _, err := s.config(nil); err != nil {
		return &usageError{err}
	}
	m := meter.New(os.Stderr, len(study.Protocols)*study.Class.Steps, s.quiet)
	defer m.Close()
	rows, err := runTogether(cmd.Context(), study, s.ranks, func(protocol string) { m.Step(protocol, 0) })
	m.Close()
	if err != nil {
		return err
	}
	c := spConditions{Machine: machine.Describe(), Commit: machine.Commit(cmd.Context()), Transports: s.transports(), Steps: study.Class.Steps, Grid: study.Class.Grid}
	return sp.Sheet(c, c.lines(), rows).Write(cmd.OutOrStdout(), s.output)
}

// transports are those that ranks may use.
func (s *spFlags) transports() string {
	if s.transport != "" {
		return s.transport
	}
	return os.Getenv("GUCX_TLS")
}

// runTogether runs a study on goroutines. step is called for each time step of rank 0. The error is that of the rank
// that failed first.
func runTogether(ctx context.Context, study *sp.Study, ranks int, step func(string)) (rows []sp.Row, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wait sync.WaitGroup
	for q, b := range ucpgroup.InProcess(ranks) {
		wait.Go(func() {
			each := step
			if q > 0 {
				each = nil
			}
			r, err := study.Run(ctx, b, each)
			if err != nil {
				cancel(fmt.Errorf("rank %d: %w", q, err))
			}
			if q == 0 {
				rows = r
			}
		})
	}
	wait.Wait()
	return rows, context.Cause(ctx)
}

// spConditions is the first object of JSON output, and what tables begin with.
type spConditions struct {
	Machine    result.Machine `json:"machine"`
	Commit     string         `json:"commit"`
	Transports string         `json:"transports,omitempty"`
	Grid       int            `json:"grid"`
	Steps      int            `json:"steps"`
}

func (c spConditions) lines() []string {
	m, over := c.Machine, c.Transports
	if over == "" {
		over = "any"
	}
	return []string{
		fmt.Sprintf("%s, %d cores, Linux %s, %s %s, GOMAXPROCS %d", m.CPU, m.Cores, m.Kernel, m.Go, m.Arch, m.GOMAXPROCS),
		fmt.Sprintf("gucx %s; transports %s; ranks in one process", c.Commit, over),
		fmt.Sprintf("NAS SP, %d x %d x %d points, %d steps", c.Grid, c.Grid, c.Grid, c.Steps),
	}
}
