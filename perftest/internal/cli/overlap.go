package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/chart"
	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/quantity"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/overlap"
	"github.com/gucx/gucx/perftest/internal/studies/virtual"
)

// nodeName is the hidden command that a process of perftest overlap runs.
const nodeName = "overlap-node"

// clusterModels returns machines of programs that send messages, by name.
var clusterModels = map[string]func() timing.Params{"connectxddr": timing.ConnectXDDR, "connectx4": timing.ConnectX4, "connectx6": timing.ConnectX6}

func clusterModelNames() []string { return slices.Sorted(maps.Keys(clusterModels)) }

// openCluster opens a model by its name, with changed parameters after commas.
func openCluster(text string) (timing.Params, error) {
	name, changes, _ := strings.Cut(text, ",")
	params, known := clusterModels[name]
	if !known {
		return timing.Params{}, fmt.Errorf("model %q: there are %s", name, strings.Join(clusterModelNames(), ", "))
	}
	rig := virtual.Rig{Params: params()}
	err := rig.Change(changes)
	return rig.Params, err
}

// shown is the flags for the output.
type shown struct {
	model  string
	output string
	plot   string
	quiet  bool
}

func (s *shown) bind(f *pflag.FlagSet) {
	f.StringVar(&s.model, "model", "", "run in the virtual time of a model: "+strings.Join(clusterModelNames(), ", ")+", or with parameters changed: connectxddr,CopyBandwidth=4000000000")
	f.StringVarP(&s.output, "output", "o", sheet.Formats()[0], "output format: "+strings.Join(sheet.Formats(), ", "))
	f.StringVar(&s.plot, "plot", "", "also plot the results to this file, .svg or .png")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "show no progress")
}

func (s *shown) complete(cmd *cobra.Command) {
	complete.One(cmd, "model", clusterModelNames)
	complete.One(cmd, "output", sheet.Formats)
	complete.Files(cmd, "plot", "svg", "png")
}

func (s *shown) check() error {
	if s.plot != "" {
		if err := chart.Check(s.plot); err != nil {
			return err
		}
	}
	return sheet.CheckFormat(s.output)
}

// messageConditions is the first object of JSON output of studies on messages, and what tables
// begin with.
type messageConditions struct {
	Machine result.Machine `json:"machine"`
	Commit  string         `json:"commit"`
	Model   string         `json:"model,omitempty"`
	Problem string         `json:"problem"`
	result.Partial
}

// conditions returns the conditions of results. If err is not nil, they are incomplete.
func (s *shown) conditions(ctx context.Context, problem string, err error) messageConditions {
	return messageConditions{Partial: partial(ctx, err), Machine: machine.Describe(), Commit: machine.Commit(ctx), Model: s.model, Problem: problem}
}

func (c messageConditions) lines() []string {
	where := "fabric shm, real time"
	if c.Model != "" {
		where = fmt.Sprintf("model %s, virtual time", c.Model)
	}
	m := c.Machine
	return append([]string{
		fmt.Sprintf("%s, GOMAXPROCS %d", m, m.GOMAXPROCS),
		fmt.Sprintf("gucx %s; %s", c.Commit, where),
		c.Problem,
	}, c.Lines()...)
}

// overlapFlags are the flags of perftest overlap.
type overlapFlags struct {
	shown
	protocols, sides []string
	sizes            string
	iterations       int
	warmup           int
	rounds           int
}

func newOverlap() *cobra.Command {
	var o overlapFlags
	cmd := &cobra.Command{
		Use:   "overlap",
		Short: "Measure the overlap of messages and computation",
		Long: `Measure the overlap of messages and computation.

An iteration is a barrier, the post of a message, work and a wait; work is
doubled until an iteration takes more than twice as long as with almost none
(base). Overhead is the additional time compared with the same work without the
message, and application availability is 1 - overhead / base: the method of the
Sandia micro-benchmarks for host processor overhead. The measured side sends
(isend) or receives (irecv) while the other one waits, or it sends and the
other one works for the same time (both).

Two processes on the shm fabric, over tagged messages of ucp with registered
buffers. A device in software uses CPU time that hardware would not; it is
reported separately. --model runs the same messages in the virtual time of two
machines with a NIC each.

Protocols, with rendezvous from 8 KiB on: rput and rget (put_zcopy, get_zcopy),
tupleq, and tupleq_copy, which copies messages of up to 8 KiB at the sender.`,
		Example: `  perftest overlap --model connectxddr            the figure of the TupleQ paper
  perftest overlap --sides isend -s 1-1m/4        in real time
  perftest overlap --protocols rget --sides both -o csv --plot overlap.svg`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&o.protocols, "protocols", overlap.Protocols().Names(), "protocols to compare")
	f.StringSliceVar(&o.sides, "sides", overlap.SideNames(), "role of the measured side")
	f.StringVarP(&o.sizes, "size", "s", "", "sizes of messages: a list with ranges, such as 8,1k-1m or 1-1m/4 (default "+overlapSizes+", and "+overlapModelSizes+" in virtual time)")
	quantity.Count(f, &o.iterations, "iters", "n", 0, "iterations of each measurement; 0: 200, and 10 in virtual time")
	quantity.Count(f, &o.warmup, "warmup", "w", 0, "warm-up iterations; 0: a tenth, at least 8")
	f.IntVar(&o.rounds, "rounds", 2, "rounds in real time; the fastest iteration counts")
	o.bind(f)
	o.complete(cmd)
	complete.List(cmd, "protocols", overlap.Protocols().Names)
	complete.List(cmd, "sides", overlap.SideNames)
	return cmd
}

// Defaults: there is no noise in virtual time; in real time a run takes less than half a minute.
const (
	overlapSizes           = "1-1m/16"
	overlapModelSizes      = "1-1m"
	overlapIterations      = 200
	overlapModelIterations = 10
	overlapWarmupShare     = 10
	overlapWarmup          = 8 // opens queues
)

// study checks the flags.
func (o *overlapFlags) study() (s overlap.Study, open overlap.Opener, err error) {
	open = overlap.Real(starter(nodeName))
	sizes := cmp.Or(o.sizes, overlapSizes)
	s.Iterations, s.Warmup, s.Rounds = o.iterations, o.warmup, o.rounds
	if s.Iterations == 0 {
		s.Iterations = overlapIterations
	}
	if o.model != "" {
		params, err := openCluster(o.model)
		if err != nil {
			return s, nil, err
		}
		open, s.Rounds = overlap.Virtual(params), 1
		sizes = cmp.Or(o.sizes, overlapModelSizes)
		if o.iterations == 0 {
			s.Iterations = overlapModelIterations
		}
	}
	if s.Warmup == 0 {
		s.Warmup = max(overlapWarmup, s.Iterations/overlapWarmupShare)
	}
	for _, name := range o.protocols {
		p, e := overlap.Protocols().Find(name)
		s.Protocols, err = append(s.Protocols, p), errors.Join(err, e)
	}
	for _, name := range o.sides {
		side, e := overlap.ParseSide(name)
		s.Sides, err = append(s.Sides, side), errors.Join(err, e)
	}
	var e error
	s.Sizes, e = parseSizes(sizes)
	if err = errors.Join(err, e, o.check()); err != nil {
		return s, nil, err
	}
	return s, open, s.Check()
}

func (o *overlapFlags) run(cmd *cobra.Command) error {
	s, open, err := o.study()
	if err != nil {
		return &usageError{err}
	}
	m := meter.New(os.Stderr, s.Cases(), o.quiet)
	rows, refused, err := s.Run(cmd.Context(), open, func(label string) { m.Step(label, 0) })
	m.Close()
	c := o.conditions(cmd.Context(), fmt.Sprintf("host processor overhead; %d iterations after %d; best of %d rounds", s.Iterations, s.Warmup, s.Rounds), err)
	reasons := refusals(refused)
	if len(rows) == 0 {
		return cmp.Or(err, errors.New(strings.Join(reasons, "; ")))
	}
	failed := overlap.Sheet(c, append(c.lines(), reasons...), rows, o.model == "").Write(cmd.OutOrStdout(), o.output)
	if err = errors.Join(err, failed); err != nil || o.plot == "" {
		return err
	}
	return chart.SaveLines(o.plot, overlapPanels(rows))
}

// overlapPanels plots availability and overhead over sizes, with a line for each protocol, and two panels for each
// side.
func overlapPanels(rows []overlap.Row) (panels []chart.Lines) {
	for _, side := range overlap.Sides() {
		available := chart.Lines{Title: string(side) + ": availability", X: "bytes", Y: "%"}
		overhead := chart.Lines{Title: string(side) + ": overhead", X: "bytes", Y: "us"}
		for _, r := range rows {
			if r.Side == side {
				available.Add(r.Protocol, float64(r.Size), 100*r.Availability)
				overhead.Add(r.Protocol, float64(r.Size), float64(r.Overhead.Nanoseconds())/1e3)
			}
		}
		if len(available.Series) > 0 {
			panels = append(panels, available, overhead)
		}
	}
	return panels
}
