package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/peers/children"
	"github.com/gucx/gucx/perftest/internal/peers/launch"
	"github.com/gucx/gucx/perftest/internal/show/chart"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/quantity"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/kv"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/perftest/internal/studies/overlap"
	"github.com/gucx/gucx/perftest/internal/studies/stencil"
	"github.com/gucx/gucx/perftest/internal/studies/virtual"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Hidden commands of processes of a measurement.
const (
	targetName = "msgrate-target"
	workerName = "msgrate-worker"
	rankName   = "stencil-rank"
)

// sharing are the flags that msgrate and endpoints have in common.
type sharing struct {
	base      msgrate.Config
	rounds    int
	processes int
	fabric    string
	uarPolicy string
	model     string
	seed      uint64
	output    string
	plot      string
	quiet     bool
}

// uarPolicies by name; the first is the default.
var uarPolicies = map[string]mlx5.UARPolicy{"static": mlx5.UARStatic, "lazy": mlx5.UARLazy}

// policyNames are the values of --uar-policy.
func policyNames() []string { return slices.Sorted(maps.Keys(uarPolicies)) }

// bind binds the flags of benchmarks that send messages, by default n from each thread.
func (s *sharing) bind(f *pflag.FlagSet, n int) {
	quantity.Count(f, &s.base.Messages, "iters", "n", n, "messages of each thread")
	f.IntVarP(&s.base.Size, "size", "s", 2, "message size in bytes")
	f.IntVar(&s.base.Depth, "depth", 64, "messages outstanding on a queue pair")
	s.bindCommon(f)
	f.IntVar(&s.processes, "processes", 1, "processes of the threads, with equal numbers")
}

// bindCommon binds the flags of benchmarks and of applications.
func (s *sharing) bindCommon(f *pflag.FlagSet) {
	f.SortFlags = false
	f.IntVar(&s.rounds, "rounds", 3, "rounds in which all are measured; the median counts")
	f.StringVarP(&s.fabric, "fabric", "f", device.Fabrics()[0], "fabric of the software HCA: "+strings.Join(device.Fabrics(), ", ")+"; on shm the target is a process of its own, on loop queue pairs are connected to themselves")
	f.StringVar(&s.model, "model", "", "run in the virtual time of a model: "+strings.Join(modelNames(), ", ")+", or with parameters changed: connectx4,RegisterWrite=50,Jitter=20; the defaults are a shorter run then, --rounds 1, and --lock-cq, as in the study")
	f.Uint64Var(&s.seed, "seed", 0, "seed of a model, for start times of threads and its Jitter; each measurement uses the next one")
	f.BoolVar(&s.base.LockCQ, "lock-cq", false, "each completion queue locks, as those of ibv_create_cq do, also if one thread polls it")
	f.StringVar(&s.uarPolicy, "uar-policy", "static", "how queue pairs get micro-UARs: static, as in the study, or lazy, as in current libmlx5")
	f.StringVarP(&s.output, "output", "o", sheet.Formats()[0], "output format: "+strings.Join(sheet.Formats(), ", "))
	f.StringVar(&s.plot, "plot", "", "also plot the results to this file, .svg or .png")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "show no progress")
}

// modelMessages of each thread are enough in virtual time, which has no noise.
const modelMessages = 3200

// modelDefaults sets the defaults of a run in virtual time for flags that are not set. n is the value of --iters, if
// the command has that flag.
func (s *sharing) modelDefaults(f *pflag.FlagSet, iters *int, n int) {
	if s.model == "" {
		return
	}
	if iters != nil && !f.Changed("iters") {
		*iters = n
	}
	if !f.Changed("rounds") {
		s.rounds = 1
	}
	if !f.Changed("lock-cq") {
		s.base.LockCQ = true
	}
}

// check checks the flags that all commands have.
func (s *sharing) check() (mlx5.Config, error) {
	queues, err := mlx5.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return queues, err
	}
	policy, known := uarPolicies[s.uarPolicy]
	switch {
	case !known:
		return queues, fmt.Errorf("UAR policy %q: there are %s", s.uarPolicy, strings.Join(policyNames(), ", "))
	case s.seed != 0 && s.model == "":
		return queues, errors.New("--seed requires --model")
	case s.rounds < 1:
		return queues, fmt.Errorf("--rounds %d: want one or more", s.rounds)
	}
	if s.plot != "" {
		if err := chart.Check(s.plot); err != nil {
			return queues, err
		}
	}
	queues.UARPolicy = policy
	return queues, errors.Join(checkFabric(s.fabric), sheet.CheckFormat(s.output))
}

// checkMessages checks the flags of benchmarks that send messages. cases are the cases to measure.
func (s *sharing) checkMessages(cases []msgrate.Case) error {
	b := &s.base
	for _, n := range []struct {
		flag string
		n    int
	}{{"iters", b.Messages}, {"size", b.Size}, {"depth", b.Depth}, {"postlist", b.Postlist},
		{"unsignaled", b.Unsignaled}, {"processes", s.processes}} {
		if n.n < 1 {
			return fmt.Errorf("--%s %d: want one or more", n.flag, n.n)
		}
	}
	if s.model != "" && s.processes > 1 {
		return fmt.Errorf("a model runs in one process, not %d", s.processes)
	}
	for _, c := range cases {
		if c.Config.Threads%s.processes != 0 {
			return fmt.Errorf("%s: %d threads in %d processes: not an equal number in each", c.Label, c.Config.Threads, s.processes)
		}
	}
	return nil
}

// models returns functions that open rigs in virtual time, by name.
var models = map[string]func() *virtual.Rig{"connectx4": virtual.ConnectX4}

func modelNames() (names []string) {
	for name := range models {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// openModel opens a model by its name, with changed parameters after commas, and its first seed.
func openModel(text string, seed uint64) (*virtual.Rig, error) {
	name, changes, _ := strings.Cut(text, ",")
	open, known := models[name]
	if !known {
		return nil, &usageError{fmt.Errorf("model %q: there are %s", name, strings.Join(modelNames(), ", "))}
	}
	rig := open()
	rig.Seed = seed
	if err := rig.Change(changes); err != nil {
		return nil, &usageError{err}
	}
	return rig, nil
}

// measurer runs senders.
func (s *sharing) measurer() (msgrate.Measurer, error) {
	if s.model != "" {
		rig, err := openModel(s.model, s.seed)
		return msgrate.On{Rig: rig}, err
	}
	if s.processes > 1 {
		return &msgrate.Processes{Count: s.processes, Fabric: softhca.Fabric(s.fabric), Start: starter(workerName)}, nil
	}
	return msgrate.On{Rig: newRealTime(softhca.Fabric(s.fabric))}, nil
}

// realTime is newRealTime as a measurer.
func realTime(fabric softhca.Fabric) msgrate.Rig { return newRealTime(fabric) }

// newRealTime makes a target in a separate process on the shm fabric.
func newRealTime(fabric softhca.Fabric) *msgrate.RealTime {
	return &msgrate.RealTime{Fabric: fabric, Remote: func() (msgrate.Target, error) {
		child, err := launch.Start([]string{targetName}, func(error) {})
		if err != nil {
			return nil, err
		}
		return msgrate.NewRemote(child.Conn, child), nil
	}}
}

// starter returns a function that starts processes of a hidden command.
func starter(name string) children.Start {
	return func() (net.Conn, io.Closer, error) {
		child, err := launch.Start([]string{name}, func(error) {})
		if err != nil {
			return nil, nil, err
		}
		return child.Conn, child, nil
	}
}

// newSharing makes the commands about threads that share objects, other commands that start processes, and the hidden
// commands of these processes.
func newSharing() []*cobra.Command {
	serve := func(name string, f func(context.Context, net.Conn) error) *cobra.Command {
		return &cobra.Command{Use: name, Hidden: true, Args: usage(cobra.NoArgs), RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := launch.Accept()
			if err != nil {
				return err
			}
			return f(cmd.Context(), conn)
		}}
	}
	return []*cobra.Command{
		newEndpoints(), newMsgrate(), newDgemm(), newStencil(), newOverlap(), newKV(),
		serve(targetName, func(_ context.Context, c net.Conn) error { return msgrate.ServeTarget(c) }),
		serve(workerName, func(ctx context.Context, c net.Conn) error { return msgrate.ServeWorker(ctx, c, realTime) }),
		serve(rankName, stencil.ServeRank), serve(nodeName, overlap.ServeNode),
		serve(kvServerName, kv.ServeServer), serve(kvClientName, kv.ServeClient),
	}
}

// conditions is the first object of JSON output, and what tables begin with.
type conditions struct {
	Machine    result.Machine `json:"machine"`
	Commit     string         `json:"commit"`
	Fabric     string         `json:"fabric,omitempty"`
	Model      string         `json:"model,omitempty"`
	Seed       uint64         `json:"seed,omitempty"`
	UARPolicy  string         `json:"uar_policy"`
	Processes  int            `json:"processes,omitempty"`
	Messages   int            `json:"messages,omitempty"`
	Size       int            `json:"size,omitempty"`
	Depth      int            `json:"depth,omitempty"`
	Postlist   int            `json:"postlist,omitempty"`
	Unsignaled int            `json:"unsignaled,omitempty"`
	Rounds     int            `json:"rounds"`
	Problem    string         `json:"problem,omitempty"` // of an application
	result.Partial
}

// conditions returns the conditions of results. If err is not nil, they are incomplete.
func (s *sharing) conditions(ctx context.Context, err error) conditions {
	c := conditions{Partial: partial(ctx, err), Machine: machine.Describe(), Commit: machine.Commit(ctx), Fabric: s.fabric, Model: s.model, Seed: s.seed,
		UARPolicy: s.uarPolicy, Processes: s.processes, Messages: s.base.Messages, Size: s.base.Size, Depth: s.base.Depth,
		Postlist: s.base.Postlist, Unsignaled: s.base.Unsignaled, Rounds: s.rounds}
	if s.model != "" {
		c.Fabric = ""
	}
	return c
}

// lines returns text for people. least is the smallest number of rounds of a result.
func (c conditions) lines(least int) []string {
	where := fmt.Sprintf("fabric %s, real time", c.Fabric)
	if c.Model != "" {
		where = fmt.Sprintf("model %s, virtual time", c.Model)
	}
	m := c.Machine
	what := fmt.Sprintf("%d messages of %d bytes a thread, depth %d, postlist %d, unsignaled %d",
		c.Messages, c.Size, c.Depth, c.Postlist, c.Unsignaled)
	if c.Problem != "" {
		what = c.Problem
	}
	rounds := fmt.Sprintf("median of %d rounds", c.Rounds)
	if least < c.Rounds {
		rounds = fmt.Sprintf("medians of %d rounds or more, of %d", least, c.Rounds)
	}
	return append([]string{
		fmt.Sprintf("%s, GOMAXPROCS %d", m, m.GOMAXPROCS),
		fmt.Sprintf("gucx %s; %s; UAR policy %s; processes %d", c.Commit, where, c.UARPolicy, max(c.Processes, 1)),
		fmt.Sprintf("%s; %s", what, rounds),
	}, c.Lines()...)
}

// finish writes n results, and plots them if they are complete. err is the reason if they are not.
func (s *sharing) finish(n int, err error, write, draw func() error) error {
	if n == 0 {
		return err
	}
	if failed := write(); failed != nil || err != nil || s.plot == "" {
		return errors.Join(err, failed)
	}
	return draw()
}

// progress shows steps of total on the standard error.
func (s *sharing) progress(total int) (step func(string), done func()) {
	m := meter.New(os.Stderr, total*s.rounds, s.quiet)
	return func(label string) { m.Step(label, s.base.Size) }, m.Close
}
