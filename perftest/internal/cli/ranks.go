package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	"github.com/gucx/gucx/perftest/internal/studies/protocol"
	"github.com/gucx/gucx/perftest/internal/studies/ranks"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpgroup"
	"github.com/gucx/gucx/ucp/ucpgroup/pmi"
)

// ranksFlags are the flags of perftest ranks.
type ranksFlags struct {
	own       gucx.Own
	args      []string
	study     ranks.Study
	ranks     int
	tests     []string
	protocols []string
	sizes     string
	transport string
	output    string
	quiet     bool
	together  bool
	ranksModelFlags
}

func (p Program) newRanks(args []string) *cobra.Command {
	s := ranksFlags{own: p.Own, args: args}
	cmd := &cobra.Command{
		Use:   "ranks",
		Short: "Measure messages between ranks, and collective operations",
		Long: `Measure messages between ranks, and collective operations.

Ranks are those of package ucp/ucpgroup, over tagged messages of UCP. perftest
starts them as processes of this host, unless a process manager has started
perftest: then perftest is one of its ranks, and rank 0 prints. Hydra's mpiexec
is such a process manager, and Slurm's srun with --mpi=pmi2. With --in-process
ranks are goroutines.

pingpong is a message between ranks 0 and 1, ring one that goes around all
ranks, bw a window of 64 from the first rank to that in the middle, bibw the
same in both directions, mbw_mr as bw for all pairs; the others are collective
operations. -o osu has the format of the OSU micro-benchmarks. Each round
follows a barrier that is not timed. Data is checked after the rounds. If a
rank exits early, all ranks exit with the reason. With more ranks than CPUs,
times are dominated by the scheduler.

--protocols compares protocols of messages: auto is chosen by cost, eager uses
no rendezvous, the others are rendezvous schemes. Memory is not registered by
the program.

--model runs the ranks in virtual time, where calls cost their instructions
times --cpi. The counts are those of ` + "`" + `perftest instructions --layers uct,ucp
--no-device -n 3 -x rc,rc_mlx5,ud,ud_mlx5,sm -s 8,1k -o csv --ops tag,tag_recv,
am_short,am_short_recv,am_bcopy,am_bcopy_recv,get,idle` + "`" + `; --counts reads others.
Ranks of one node (--nodes) reach each other over sm.`,
		Example: `  perftest ranks                                       four ranks, all tests
  perftest ranks --ranks 8 -t allreduce,bcast -s 8-1m/16
  perftest ranks -x tcp -t pingpong -s 8
  perftest ranks --ranks 2 -x sm -t pingpong -s 16k-4m/4 \
    --protocols auto,eager,get_zcopy,put_zcopy,am
  perftest ranks --model connectx6 --ranks 16 -t allgather,bcast --cpi 0.5,1,2
  mpiexec -n 4 perftest ranks -t barrier
  srun --mpi=pmi2 -n 4 perftest ranks`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&s.ranks, "ranks", 4, "ranks to start; ignored under a process manager")
	f.StringSliceVarP(&s.tests, "test", "t", nil, "tests: "+strings.Join(ranks.Names(2), ", ")+" (default all)")
	f.StringSliceVar(&s.protocols, "protocols", []string{ranks.Auto}, "protocols of UCP for messages, in turns: "+strings.Join(ranks.Protocols().Names(), ", "))
	f.StringVarP(&s.sizes, "size", "s", "8,1k,32k,256k", "bytes of a message, or of the part of a rank: 8,1k,64k; 1-1m for powers of two")
	quantity.Count(f, &s.study.Iterations, "iters", "n", 200, "rounds")
	quantity.Count(f, &s.study.Warmup, "warmup", "w", 20, "warm-up rounds, not timed")
	f.BoolVar(&s.together, "in-process", false, "ranks are goroutines of one process")
	f.StringVarP(&s.transport, "transport", "x", "", "transports, in the syntax of GUCX_TLS (default: its value)")
	f.StringVarP(&s.output, "output", "o", sheet.Formats()[0], "output format: "+strings.Join(ranksFormats(), ", "))
	f.BoolVarP(&s.quiet, "quiet", "q", false, "show no progress")
	s.ranksModelFlags.bind(cmd)
	complete.List(cmd, "test", func() []string { return ranks.Names(2) })
	complete.List(cmd, "protocols", ranks.Protocols().Names)
	complete.One(cmd, "output", ranksFormats)
	return cmd
}

// check checks the flags for a number of ranks.
func (s *ranksFlags) check(n int) (err error) {
	if n < 1 || n > ucpgroup.MaxRanks {
		return fmt.Errorf("%d ranks: want 1 to %d", n, ucpgroup.MaxRanks)
	}
	if s.tests == nil {
		s.tests = ranks.Names(n)
	}
	for _, name := range s.tests {
		t, err := ranks.ParseTest(name)
		if err != nil {
			return err
		}
		s.study.Tests = append(s.study.Tests, t)
	}
	if len(s.protocols) == 0 {
		return errors.New("no protocol")
	}
	for _, name := range s.protocols {
		if _, err := ranks.Protocols().Find(name); err != nil {
			return err
		}
	}
	if s.study.Sizes, err = parseSizes(s.sizes); err != nil {
		return err
	}
	if err := s.study.Check(n, len(s.protocols)); err != nil {
		return err
	}
	if s.output == osuFormat {
		return nil
	}
	return sheet.CheckFormat(s.output)
}

// osuFormat is the format of the OSU micro-benchmarks.
const osuFormat = "osu"

func ranksFormats() []string { return append(sheet.Formats(), osuFormat) }

// write writes rows. If failed is not nil, they are incomplete.
func (s *ranksFlags) write(cmd *cobra.Command, rows []ranks.Row, n int, failed error) error {
	if s.output == osuFormat {
		return ranks.WriteOSU(cmd.OutOrStdout(), rows, s.study.Iterations)
	}
	c := s.conditions(cmd.Context(), n, failed)
	return ranks.Sheet(c, c.lines(), rows).Write(cmd.OutOrStdout(), s.output)
}

// checkTransports rejects transports that cannot be opened.
func (s *ranksFlags) checkTransports() error {
	c, err := s.config(nil)
	if err != nil {
		return err
	}
	return checkConfig(c)
}

// config returns the configuration of the environment, the flags and a protocol, in increasing precedence.
func (s *ranksFlags) config(env []string) (gucx.Config, error) {
	environ := os.Environ()
	if s.transport != "" {
		environ = append(environ, "GUCX_TLS="+s.transport)
	}
	return gucx.FromEnv(append(environ, env...), s.own)
}

func (s *ranksFlags) run(cmd *cobra.Command) error {
	if err := s.checkModelFlags(cmd); err != nil {
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
	if err := errors.Join(s.check(s.ranks), s.checkTransports()); err != nil {
		return &usageError{err}
	}
	if s.together {
		return runTogether(cmd.Context(), s.ranks, func(ctx context.Context, b ucpgroup.Bootstrap) error { return s.runRank(ctx, cmd, b) })
	}
	return startRanks(cmd, s.args, s.ranks)
}

// runManaged runs a rank of a process manager.
func (s *ranksFlags) runManaged(cmd *cobra.Command, boot *pmi.Client) error {
	if err := s.check(boot.Size()); err != nil {
		return &usageError{errors.Join(err, boot.Abort(exitUsage))}
	}
	if err := s.runRank(cmd.Context(), cmd, boot); err != nil {
		return &managedError{boot.Rank(), err}
	}
	return leaveJob(boot)
}

// runRank runs one rank. Rank 0 writes the results, also partial ones after a failure.
func (s *ranksFlags) runRank(ctx context.Context, cmd *cobra.Command, b ucpgroup.Bootstrap) (err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	groups, ways, err := s.join(ctx, b, &undo)
	if err != nil {
		return err
	}
	m := meter.New(os.Stderr, s.study.Cases(), s.quiet || b.Rank() != 0)
	defer m.Close()
	rows, err := s.study.Run(ctx, ways, func(test string, size int) { m.Step(test, size) })
	m.Close()
	failed := err
	if b.Rank() == 0 && len(rows) > 0 {
		err = errors.Join(err, s.write(cmd, rows, b.Size(), failed))
	}
	return errors.Join(err, ranks.Leave(ctx, groups, failed))
}

// join makes a rank of the worker of each protocol.
func (s *ranksFlags) join(ctx context.Context, b ucpgroup.Bootstrap, undo *cleanup.Stack) (groups []*ucpgroup.Group, ways []ranks.Way, err error) {
	for _, name := range s.protocols {
		p, err := ranks.Protocols().Find(name)
		if err != nil {
			return nil, nil, err
		}
		g, err := s.joinBy(ctx, p, b, undo)
		if err != nil {
			return nil, nil, err
		}
		groups, ways = append(groups, g), append(ways, ranks.Way{Protocol: name, Comm: g.World()})
	}
	return groups, ways, nil
}

// joinBy opens a worker whose messages use a protocol.
func (s *ranksFlags) joinBy(ctx context.Context, p protocol.Protocol, b ucpgroup.Bootstrap, undo *cleanup.Stack) (*ucpgroup.Group, error) {
	cfg, err := s.config(p.Env)
	if err != nil {
		return nil, err
	}
	return joinGroup(ctx, cfg, p.Name, b, undo)
}

// joinGroup opens a worker in a new context, and connects it to the workers of the same name of the other ranks.
func joinGroup(ctx context.Context, cfg gucx.Config, name string, b ucpgroup.Bootstrap, undo *cleanup.Stack) (*ucpgroup.Group, error) {
	owner, err := cfg.Open()
	if err != nil {
		return nil, err
	}
	undo.Add(owner.Close)
	worker, err := owner.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return nil, err
	}
	undo.Add(worker.Close)
	return ucpgroup.New(ctx, worker, keyed{b, name})
}

// keyed is a bootstrap whose keys have a prefix, because a key can be put only once.
type keyed struct {
	ucpgroup.Bootstrap
	name string
}

// Put implements ucpgroup.Bootstrap.
func (b keyed) Put(ctx context.Context, key string, value []byte) error {
	return b.Bootstrap.Put(ctx, b.name+"/"+key, value)
}

// Get implements ucpgroup.Bootstrap.
func (b keyed) Get(ctx context.Context, rank int, key string) ([]byte, error) {
	return b.Bootstrap.Get(ctx, rank, b.name+"/"+key)
}

// ranksConditions is the first object of JSON output, and what tables begin with.
type ranksConditions struct {
	Machine    result.Machine `json:"machine"`
	Commit     string         `json:"commit"`
	Transports string         `json:"transports,omitempty"`
	Ranks      int            `json:"ranks"`
	Iterations int            `json:"iterations"`
	Warmup     int            `json:"warmup"`
	Together   bool           `json:"in_process"`
	result.Partial
}

// conditions are those of results that err, if not nil, has cut short.
func (s *ranksFlags) conditions(ctx context.Context, n int, err error) ranksConditions {
	c := ranksConditions{Partial: partial(ctx, err), Machine: machine.Describe(), Commit: machine.Commit(ctx), Transports: s.transport,
		Ranks: n, Iterations: s.study.Iterations, Warmup: s.study.Warmup, Together: s.together}
	if c.Transports == "" {
		c.Transports = os.Getenv("GUCX_TLS")
	}
	return c
}

// sharedCPUs warns if ranks share CPUs.
func (c ranksConditions) sharedCPUs() []string {
	if c.Ranks <= c.Machine.Cores {
		return nil
	}
	return []string{fmt.Sprintf("Warning: this host has %d cores for %d ranks; ranks that share a core wait for each other, and times are those of the scheduler too", c.Machine.Cores, c.Ranks)}
}

func (c ranksConditions) lines() []string {
	m, over, are := c.Machine, c.Transports, "processes"
	if over == "" {
		over = "any"
	}
	if c.Together {
		are = "goroutines of one process"
	}
	return append([]string{
		fmt.Sprintf("%s, GOMAXPROCS %d", m, m.GOMAXPROCS),
		fmt.Sprintf("gucx %s; transports %s; %d ranks that are %s", c.Commit, over, c.Ranks, are),
		fmt.Sprintf("%d rounds after %d", c.Iterations, c.Warmup),
	}, append(c.sharedCPUs(), c.Lines()...)...)
}
