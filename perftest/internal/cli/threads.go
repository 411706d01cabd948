package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/ucplayer"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/peers/launch"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/threads"
	"github.com/gucx/gucx/ucp"
)

// threadTargetName is the hidden command of the target of -T.
const threadTargetName = "threads-target"

// threadInitiatorName is the hidden command of the initiators of --pairs.
const threadInitiatorName = "threads-initiator"

// defaultThreadTests are the tests of -T without -t.
var defaultThreadTests = []string{"put_mr", "get_mr", "am_mr", "tag_mr"}

// flagsWithThreads are the flags that can be used with -T.
var flagsWithThreads = []string{"threads", "thread-mode", "pairs", "test", "size", "full", "iters", "warmup", "rounds", "window", "transport", "layers", "device", "fabric", "output", "quiet"}

// threaded reports whether -T or its mode is given.
func (s *settings) threaded(f *pflag.FlagSet) bool {
	return f.Changed("threads") || f.Changed("thread-mode") || f.Changed("pairs")
}

// newThreadTarget makes the command of the target of -T.
func (p Program) newThreadTarget() *cobra.Command {
	return p.newThreadSide(threadTargetName, threads.Serve)
}

// newThreadInitiator makes the command of an initiator of --pairs.
func (p Program) newThreadInitiator() *cobra.Command {
	return p.newThreadSide(threadInitiatorName, func(ctx context.Context, c net.Conn, open threads.Open) error {
		return threads.ServeInitiator(ctx, c, open, starter(threadTargetName))
	})
}

// newThreadSide makes the command of a process of -T.
func (p Program) newThreadSide(name string, serve func(context.Context, net.Conn, threads.Open) error) *cobra.Command {
	return &cobra.Command{Use: name, Hidden: true, Args: usage(cobra.NoArgs), RunE: func(cmd *cobra.Command, _ []string) error {
		cfg, err := p.config()
		if err != nil {
			return err
		}
		conn, err := launch.Accept()
		if err != nil {
			return err
		}
		return serve(cmd.Context(), conn, threadContext(cfg))
	}}
}

// threadContext opens contexts as the layer ucp does.
func threadContext(cfg layers.Config) threads.Open {
	return func(w threads.Where) (*ucp.Context, error) {
		l := ucplayer.New(cfg.UCP, cfg.Components)
		return l.Context(layer.Config{Transport: w.Transport, Device: w.Device, Fabric: w.Fabric})
	}
}

// checkThreadFlags rejects flags that cannot be used with -T.
func (s *settings) checkThreadFlags(f *pflag.FlagSet) (err error) {
	f.Visit(func(given *pflag.Flag) {
		if err == nil && !slices.Contains(flagsWithThreads, given.Name) {
			err = fmt.Errorf("-T: --%s cannot be used with it", given.Name)
		}
	})
	switch {
	case err != nil:
		return err
	case f.Changed("pairs") && (f.Changed("threads") || f.Changed("thread-mode")):
		return errors.New("--pairs N sets -T N -M processes: omit these")
	case f.Changed("pairs"):
		s.threads, s.modes = s.pairs, []string{string(threads.Processes)}
	}
	switch {
	case len(s.threads) == 0:
		return errors.New("-M needs a number of goroutines: -T")
	case strings.Contains(s.transport, ","):
		return errors.New("-T: one transport at a time, by -x")
	case s.fabric == loopFabric:
		return errors.New("-T needs a target process; on the loop fabric there is none")
	case len(s.layers) > 0 && !slices.Equal(s.layers, []string{ucplayer.Name}):
		return fmt.Errorf("-T measures the layer %s only", ucplayer.Name)
	}
	return sheet.CheckFormat(s.output)
}

// threadJob is a checked measurement of -T. Errors are usage errors.
type threadJob struct {
	study   threads.Study
	config  layers.Config
	remarks []string
}

func (s *settings) threadJob(f *pflag.FlagSet) (_ *threadJob, err error) {
	if err := s.checkThreadFlags(f); err != nil {
		return nil, err
	}
	t := &threadJob{study: threads.Study{Threads: s.threads, Iterations: s.iterations, Warmup: s.warmup,
		Rounds: min(s.rounds, max(s.iterations, 1)), Window: s.window}}
	j := &job{settings: s}
	if j.config, err = layers.FromEnv(os.Environ(), s.own); err != nil {
		return nil, err
	}
	if err := j.chooseTransport(); err != nil {
		return nil, err
	}
	if j.loopback() {
		return nil, fmt.Errorf("-T needs a target process; %s does not leave its worker", j.plan.Transport)
	}
	t.config, t.remarks = j.config, j.remarks
	t.study.Where = threads.Where{Transport: j.plan.Transport, Device: j.plan.Device, Fabric: s.fabric}
	if t.study.Sizes, err = s.chosenSizes(); err != nil {
		return nil, err
	}
	if err := t.parse(s); err != nil {
		return nil, err
	}
	return t, t.study.Check()
}

// parse parses the names of tests and modes.
func (t *threadJob) parse(s *settings) error {
	tests := s.tests
	switch {
	case len(tests) == 0:
		tests = defaultThreadTests
	case isAll(tests):
		tests = threads.Names()
	}
	for _, name := range tests {
		test, err := threads.ParseTest(strings.TrimPrefix(name, "ucp_"))
		if err != nil {
			return fmt.Errorf("-T: %w", err)
		}
		t.study.Tests = append(t.study.Tests, test)
	}
	for _, name := range s.modes {
		m, err := threads.ParseMode(name)
		if err != nil {
			return err
		}
		t.study.Modes = append(t.study.Modes, m)
	}
	return nil
}

// runThreads runs the measurement of -T.
func (s *settings) runThreads(cmd *cobra.Command) error {
	t, err := s.threadJob(cmd.Flags())
	if err != nil {
		return &usageError{err}
	}
	for _, text := range t.remarks {
		cmd.PrintErrln(cmd.Root().Name() + ": " + text)
	}
	m := meter.New(os.Stderr, t.study.Cases()*t.study.Rounds, s.quiet)
	defer m.Close()
	start := threads.Starts{Target: starter(threadTargetName), Initiator: starter(threadInitiatorName)}
	rows, err := t.study.Run(cmd.Context(), threadContext(t.config), start, m.Step)
	m.Close()
	if len(rows) == 0 {
		return err
	}
	c := threadConditions{Machine: machine.Describe(), Commit: machine.Commit(cmd.Context()), Study: t.study, Partial: partial(cmd.Context(), err)}
	return errors.Join(err, threads.Sheet(c, c.lines(), rows, t.study.Cases() == len(t.study.Tests)*len(t.study.Sizes)).Write(cmd.OutOrStdout(), s.output))
}

// threadConditions is the first object of JSON output, and what tables begin with.
type threadConditions struct {
	Machine result.Machine `json:"machine"`
	Commit  string         `json:"commit"`
	Study   threads.Study  `json:"study"`
	result.Partial
}

func (c threadConditions) lines() []string {
	m, s := c.Machine, c.Study
	who := "two processes"
	if slices.Contains(s.Modes, threads.Processes) {
		who = "with processes a pair of them for each thread, else two"
	}
	return append([]string{
		fmt.Sprintf("%s, GOMAXPROCS %d", m, m.GOMAXPROCS),
		fmt.Sprintf("gucx %s; ucp over %s; %s, nothing is pinned", c.Commit, s.Where.Transport, who),
		fmt.Sprintf("%d operations of each thread after %d, in %d rounds; window %d", s.Iterations, s.Warmup, s.Rounds, s.Window),
	}, c.Lines()...)
}
