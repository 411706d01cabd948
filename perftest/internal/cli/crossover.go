package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/ucplayer"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/quantity"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/crossover"
)

// Sizes of crossover, in bytes: the default, which takes less than half a minute, and the name and the limits of the
// full list.
const (
	crossoverSizes = "8,1k,8k,64k,512k"
	everySize      = "all"
	leastCrossover = 8
	mostCrossover  = 4 << 20
)

// crossoverFlags are the flags of perftest crossover.
type crossoverFlags struct {
	settings   settings // of one run; transport and memory are lists here
	transports []string
	memories   []string
	limit      float64
	again      int
	written    bool

	table crossover.Table
	run   result.Run // of the first run
}

func (p Program) newCrossover() *cobra.Command {
	x := crossoverFlags{settings: settings{own: p.Own, window: defaultWindow, output: sheet.Formats()[0]}}
	cmd := &cobra.Command{
		Use:   "crossover",
		Short: "Compare the protocol that ucp chooses with all others",
		Long: `Compare the protocol that ucp chooses for messages with all others.

For each transport, class of memory, test and size the choice of ucp (auto) is
compared with each protocol that it could have chosen: eager, and rendezvous by
get_zcopy, put_zcopy and am. They alternate, and the fastest round counts. Rows
in which auto is slower by more than --limit are repeated up to --again times,
each time in new processes. A scheme that a transport does not have is replaced
by one that it has.

As in ucx_perftest, senders write and receivers read only a few bytes of each
message. With --written they write and read all bytes, as programs do. Then
protocols that access memory of the other side take longer.

Exit status: 1 if auto is still slower by more than --limit percent in a row.`,
		Example: `  perftest crossover                    five sizes over each transport
  perftest crossover --memory alloc,mapped,plain -s all -n 1k    many minutes
  perftest crossover -x sm --memory mapped -t tag_lat -s 1k-64k
  perftest crossover -x sm --written    as programs use messages
  perftest crossover -x rc_mlx5 --limit 30 -o csv`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return x.measure(cmd) },
	}
	f, s := cmd.Flags(), &x.settings
	f.SortFlags = false
	f.StringSliceVarP(&x.transports, "transport", "x", []string{"sm", "tcp", "rc", "rc_mlx5"}, "transports")
	f.StringSliceVar(&x.memories, "memory", layer.MemoryNames()[:1], "classes of memory of both sides, of "+strings.Join(layer.MemoryNames(), ", "))
	f.StringSliceVarP(&s.tests, "test", "t", []string{"tag_lat", "am_lat"}, "tests of messages")
	f.StringVarP(&s.sizes, "size", "s", "", "message sizes in bytes: 8,1k,64k; 1-1m for powers of two; all: powers of two of 8-4m and the means between them (default "+crossoverSizes+")")
	f.Float64Var(&x.limit, "limit", 15, "permitted slowdown of auto relative to the best protocol, in percent")
	f.IntVar(&x.again, "again", 1, "how often to repeat rows beyond the limit")
	f.BoolVar(&x.written, "written", false, "write each message before it is sent, and read it when it has arrived")
	quantity.Count(f, &s.iterations, "iters", "n", 500, "messages of each protocol in a row")
	quantity.Count(f, &s.warmup, "warmup", "w", crossoverWarmup, "warm-up messages, not timed; fewer above 8 KiB")
	f.IntVar(&s.rounds, "rounds", 50, "rounds in which the protocols alternate")
	f.StringVarP(&s.fabric, "fabric", "f", device.Fabrics()[0], "fabric of the software HCA: "+strings.Join(device.Fabrics(), ", "))
	f.StringVarP(&s.cpus, "cpus", "c", "auto", "CPUs of initiator and target: 1,0; auto: two different ones; off: no pinning")
	f.StringVarP(&s.output, "output", "o", s.output, "output format: "+strings.Join(sheet.Formats(), ", "))
	f.BoolVarP(&s.quiet, "quiet", "q", false, "show no progress")
	complete.List(cmd, "memory", layer.MemoryNames)
	complete.List(cmd, "transport", func() []string {
		return installed(p.Own, func(t *device.Transport) string { return t.Resource.Transport })
	})
	complete.One(cmd, "fabric", device.Fabrics)
	complete.One(cmd, "output", sheet.Formats)
	return cmd
}

// crossoverWarmup is more than the receives of a queue of rc or ud (RX_QUEUE_LEN): the software HCA takes 20 us longer for
// the first message in each buffer, as its pages are new.
const crossoverWarmup = 1_200

// crossoverProtocols returns the names of the compared protocols.
func crossoverProtocols() []string { return append([]string{crossover.Auto}, layers.Forced()...) }

// layerProtocol returns the protocol of a layer.
func layerProtocol(layer string) string {
	if layer == ucplayer.Name {
		return crossover.Auto
	}
	return layer
}

// cell is a transport and a class of memory, with the choices of ucp for both.
type cell struct {
	transport, memory string
	uses              *crossover.Protocols
}

// measure measures all cells, repeats rows beyond the limit, and writes the table.
func (x *crossoverFlags) measure(cmd *cobra.Command) error {
	cells, err := x.cells()
	if err != nil {
		return &usageError{err}
	}
	err = x.measureAll(cmd, cells)
	if len(x.table.Rows) == 0 {
		return err
	}
	c := x.conditions(cmd.Context(), err)
	err = errors.Join(err, crossover.Sheet(c, c.lines(), crossoverProtocols(), x.table.Rows).Write(cmd.OutOrStdout(), x.settings.output))
	return errors.Join(err, lossError(&x.table, x.limit))
}

func (x *crossoverFlags) measureAll(cmd *cobra.Command, cells []cell) error {
	for i := range cells {
		if err := x.measureCell(cmd, &cells[i], x.settings.tests, x.settings.sizes); err != nil {
			return err
		}
	}
	for range x.again {
		for i := range cells {
			for _, test := range x.settings.tests {
				over := x.table.SizesOver(x.limit, cells[i].transport, cells[i].memory, test)
				if len(over) == 0 {
					continue
				}
				if err := x.measureCell(cmd, &cells[i], []string{test}, sizeList(over)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measureCell runs tests of some sizes and adds the results to the table.
func (x *crossoverFlags) measureCell(cmd *cobra.Command, c *cell, tests []string, sizes string) error {
	j, err := x.job(c, tests, sizes)
	if err != nil {
		return err
	}
	j.emit = func(_ io.Writer, run result.Run, records []result.Record) error {
		if len(x.table.Rows) == 0 {
			x.run = run
		}
		x.table.Add(c.memory, records, layerProtocol, c.uses.Find)
		return nil
	}
	return j.run(cmd)
}

// job returns a run of a cell.
func (x *crossoverFlags) job(c *cell, tests []string, sizes string) (*job, error) {
	s := x.settings
	s.transport, s.memory, s.tests, s.sizes = c.transport, c.memory, tests, sizes
	s.layers = []string{ucplayer.Name}
	j, err := s.readyJob()
	if err != nil {
		return nil, err
	}
	j.plan.Layers = append(j.plan.Layers, layers.Forced()...)
	j.plan.Strict, j.plan.Missing, j.plan.Written = false, false, x.written
	for _, t := range j.plan.Tests {
		if !t.Kind.Message() {
			return nil, fmt.Errorf("-t %s: it is not a test of messages", t.Name)
		}
	}
	return j, nil
}

// cells checks the flags and gets the choices of ucp from Explain.
func (x *crossoverFlags) cells() (cells []cell, err error) {
	switch {
	case len(x.transports) == 0 || len(x.memories) == 0 || len(x.settings.tests) == 0:
		return nil, errNothing
	case x.limit < 0 || x.again < 0:
		return nil, fmt.Errorf("--limit %v --again %d: at least 0", x.limit, x.again)
	}
	switch x.settings.sizes {
	case "":
		x.settings.sizes = crossoverSizes
	case everySize:
		x.settings.sizes = sizeList(crossover.Sizes(leastCrossover, mostCrossover))
	}
	if _, err := parseSizes(x.settings.sizes); err != nil {
		return nil, err
	}
	for i, transport := range x.transports {
		if slices.Contains(x.transports[:i], transport) {
			return nil, fmt.Errorf("duplicate transport %q", transport)
		}
		text := ""
		for _, memory := range x.memories {
			c := cell{transport: transport, memory: memory}
			j, err := x.job(&c, x.settings.tests, x.settings.sizes)
			if err != nil {
				return nil, err
			}
			if text == "" {
				if text, err = j.config.Explain(x.settings.fabric, transport); err != nil {
					return nil, err
				}
			}
			c.uses = crossover.Explained(text, memory)
			cells = append(cells, c)
		}
	}
	return cells, nil
}

// sizeList returns sizes in the syntax of -s.
func sizeList(sizes []int) string {
	texts := make([]string, len(sizes))
	for i, n := range sizes {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}

// lossError returns an error with the number of rows in which auto is slower by more than limit percent; nil for none.
func lossError(t *crossover.Table, limit float64) error {
	over := t.Over(limit)
	if len(over) == 0 {
		return nil
	}
	r := over[0]
	return fmt.Errorf("auto loses more than %.0f %% in %d of %d rows; most over %s, memory %s, %s of %d bytes: %.0f %%, as it uses %s and not %s",
		limit, len(over), len(t.Rows), r.Transport, r.Memory, r.Test, r.Size, r.LossPct, r.Uses, r.Best)
}

// crossoverConditions is the first object of JSON output.
type crossoverConditions struct {
	Machine    result.Machine `json:"machine"`
	Commit     string         `json:"commit"`
	Iterations int            `json:"iterations"`
	Rounds     int            `json:"rounds"`
	CPUs       []int          `json:"cpus"`
	LimitPct   float64        `json:"limit_pct"`
	Written    bool           `json:"written"`
	result.Partial
}

func (x *crossoverFlags) conditions(ctx context.Context, err error) crossoverConditions {
	return crossoverConditions{Partial: partial(ctx, err), Machine: x.run.Machine, Commit: machine.Commit(ctx),
		Iterations: x.settings.iterations, Rounds: x.settings.rounds, CPUs: x.run.Settings.CPUs, LimitPct: x.limit, Written: x.written}
}

func (c crossoverConditions) lines() []string {
	return append([]string{
		fmt.Sprintf("%s, GOMAXPROCS %d", c.Machine, c.Machine.GOMAXPROCS),
		fmt.Sprintf("gucx %s; CPUs %v; %d messages of each protocol in %d rounds; limit %.0f %%", c.Commit, c.CPUs, c.Iterations, c.Rounds, c.LimitPct),
	}, c.Lines()...)
}
