package instr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/quantity"
	"github.com/gucx/gucx/uct/ib/dv"
)

// Defaults of the command.
const (
	defaultReps = 3
	// warmup is the number of repetitions in which pools grow and periodic work, such as the
	// moderation of completions, reaches a steady state.
	warmup = 130
)

// defaultOps are all operations except windows, which take a hundred times as long.
func defaultOps() (names []string) {
	for op := range numOps {
		if !op.windowed() {
			names = append(names, op.String())
		}
	}
	return names
}

// childName is the hidden command of the traced child.
const childName = "child"

// options are the flags of the command.
type options struct {
	ops, layers      []string
	transports       []string
	sizes            []int
	reps             int
	fabric, output   string
	verbose          int
	withAlternatives bool
	noDevice         bool
	quiet            bool
}

// Command returns "perftest instructions", which counts the instructions of single operations by
// single-stepping a child process. The hidden command below it is that of the child.
func Command() *cobra.Command { return newCommand(openers) }

// long is the help text of the command.
const long = `Count the instructions of one operation, by layer and function.

A child process runs each operation over verbs, UCT and UCP on the software HCA,
and over mlx5 queues without verbs (averbs) below rc_mlx5, while this one
single-steps it with ptrace. That needs no performance counters and no
privilege, and the counts are exact: they compare layers on a noisy machine.
Everything takes less than half a minute, half of that with --no-device, and a
few operations (--ops, -s) some seconds.

Rows are where instructions were executed, columns the API that was called. The
caller's own instructions are not counted; those in the standard library count
for the layer that called it; everything between a doorbell and its return is
the software HCA's and not part of the total, because hardware does it
elsewhere. A put of 1 KiB is posted from registered memory in verbs, and copied
into a transport buffer by UCT and UCP; put_zcopy and get_zcopy, from 512 B on,
are posted from registered memory in all three, in UCP without a request.
Of amd64's instructions csv and json have too how many are branches, calls,
calls through pointers, and loads.
poll_tx and poll_rx poll an empty completion queue of sends, or of receives, in
verbs and averbs; a transport has one queue for both.
A put_window, get_window or fadd_window is 80 operations and the flush, whose
end verbs know; it is counted only if it is asked for.
Active messages are counted on both sides: am_short and am_bcopy are the
sender's call, am_short_recv and am_bcopy_recv the receiver's progress up to
the handler's return, in UCT over every transport that -x knows, of which ud
and ud_mlx5 have nothing else, in UCP (SendActive) over those that it is
counted over: rc, rc_mlx5, sm and self. Sizes of UCT have the 8 bytes of the
header in them.
Tagged messages are those of UCP: tag is TagSend, tag_post TagRecv before there
is a message and tag_kept after, and tag_recv the receiver's progress that
fills a receive. rndv, rndv_recv and rndv_done are TagSend, the receiver's and
the sender's progress for a message that is announced, from 32 KiB on.`

const examples = `  perftest instructions                                everything, over rc
  perftest instructions --ops put,am_short -s 8        two operations of 8 bytes
  perftest instructions -x sm,self --layers uct,ucp --ops tag,tag_recv
  perftest instructions -x rc,rc_mlx5 -f shm --no-device
  perftest instructions --ops put -s 8 -v              by function`

func newCommand(openers map[Part]opener) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "instructions",
		Short:         "Count the instructions of one operation, by layer and function",
		Long:          long,
		Example:       examples,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: false,
		PreRunE:       func(*cobra.Command, []string) error { return o.check() },
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.bind(cmd)
	cmd.AddCommand(childCommand(openers))
	return cmd
}

// bind adds the flags to cmd.
func (o *options) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&o.ops, "ops", defaultOps(), "operations to count, of "+strings.Join(opNames[:], ", "))
	f.Lookup("ops").DefValue = "all but windows"
	quantity.SizeList(f, &o.sizes, maxSize, "size", "s", []int{8, 1024}, "message lengths in bytes: 8,1k, 8-64k for powers of two")
	f.StringSliceVar(&o.layers, "layers", nil, "APIs to call, of "+strings.Join(partNames[Device+1:harness], ", ")+" (default all; averbs with -x "+dv.RCName+")")
	f.StringSliceVarP(&o.transports, "transport", "x", nil, "transports to count UCT over, and UCP over rc, rc_mlx5, sm and self of them: "+strings.Join(transports, ",")+" (default "+transports[0]+"; for messages all)")
	f.StringVarP(&o.fabric, "fabric", "f", fabrics[0], "fabric of the software HCA: "+strings.Join(fabrics, ", "))
	quantity.Count(f, &o.reps, "reps", "n", defaultReps, "repetitions of each operation")
	f.BoolVar(&o.noDevice, "no-device", false, "let the software HCA run at full speed, and count each call of it as one instruction (amd64)")
	f.BoolVar(&o.withAlternatives, "switches", false, "count also the alternatives of the UCX study, and a put through a SharedWorker")
	f.CountVarP(&o.verbose, "verbose", "v", "show functions; twice: source lines too")
	f.StringVarP(&o.output, "output", "o", formats[0], "output format: "+strings.Join(formats, ", "))
	f.BoolVarP(&o.quiet, "quiet", "q", false, "show no progress")
	complete.List(cmd, "ops", complete.Values(opNames[:]...))
	complete.List(cmd, "layers", complete.Values(partNames[Device+1:harness]...))
	complete.List(cmd, "transport", complete.Values(transports...))
	complete.One(cmd, "fabric", complete.Values(fabrics...))
	complete.One(cmd, "output", complete.Values(formats...))
}

// childCommand returns the command that the traced child runs.
func childCommand(openers map[Part]opener) *cobra.Command {
	return &cobra.Command{
		Use:    childName,
		Short:  "Run the operations to be counted; started by its parent command",
		Hidden: true,
		Args:   cobra.NoArgs,
		// A usage text on the child's standard error would hide the error.
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runChild(cmd.InOrStdin(), cmd.OutOrStdout(), openers)
		},
	}
}

// fabrics and formats are the values of flags; the first is the default.
var (
	fabrics = []string{"loop", "shm"}
	formats = []string{"table", "md", "csv", "json"}
)

// check returns an error for invalid flags.
func (o options) check() error {
	_, err := o.plan()
	if err == nil {
		_, err = o.writer()
	}
	return err
}

// run counts the cases and prints the results.
func (o options) run(cmd *cobra.Command) error {
	p, err := o.plan()
	if err != nil {
		return err
	}
	write, err := o.writer()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	res, err := o.count(ctx, childArgs(cmd), p.Cases())
	if err != nil && len(res.Results) == 0 {
		return err
	}
	return errors.Join(err, write(cmd.OutOrStdout(), res))
}

// count counts the cases and shows the progress.
func (o options) count(ctx context.Context, child []string, cases []Case) (*Measurement, error) {
	progress := meter.New(os.Stderr, len(cases)*o.reps, o.quiet)
	defer progress.Close()
	m := measurer{args: child, detail: Detail(min(o.verbose, int(ByLine))),
		window: func(c Case) { progress.Step(c.Op.String(), c.Size) }}
	if o.noDevice {
		m.stepped = Verbs
	}
	return m.measure(ctx, job{Cases: cases, Fabric: o.fabric, Reps: o.reps, Warmup: warmup})
}

// childArgs returns the arguments of the hidden command.
func childArgs(cmd *cobra.Command) []string {
	return append(strings.Fields(cmd.CommandPath())[1:], childName)
}

// plan returns the plan of the flags, and an error if they are invalid.
func (o options) plan() (p Plan, err error) {
	p.Sizes, p.Switches = o.sizes, o.withAlternatives
	for _, name := range o.ops {
		op, err := ParseOp(name)
		if err != nil {
			return Plan{}, err
		}
		p.Ops = append(p.Ops, op)
	}
	for _, name := range o.apis() {
		i := slices.Index(partNames[:harness], name)
		if i <= int(Device) {
			return Plan{}, fmt.Errorf("unknown layer %q; there are %s", name, strings.Join(partNames[Device+1:harness], ", "))
		}
		p.APIs = append(p.APIs, Part(i))
	}
	slices.Sort(p.APIs)
	for _, name := range o.transports {
		if !slices.Contains(transports, name) {
			return Plan{}, fmt.Errorf("unknown transport %q; there are %s", name, strings.Join(transports, ", "))
		}
		p.Transports = append(p.Transports, name)
	}
	for _, n := range o.sizes {
		if n < 1 || n > maxSize {
			return Plan{}, fmt.Errorf("size %d: outside 1..%d", n, maxSize)
		}
	}
	switch {
	case o.reps < 1:
		return Plan{}, fmt.Errorf("%d repetitions: at least 1", o.reps)
	case !slices.Contains(fabrics, o.fabric):
		return Plan{}, fmt.Errorf("fabric %q: there are %s", o.fabric, strings.Join(fabrics, ", "))
	case len(p.Cases()) == 0:
		return Plan{}, errors.New("nothing to count: no operation, layer or size")
	}
	return p, nil
}

// apis returns the selected layers, or the default layers of the transports.
func (o options) apis() []string {
	switch {
	case o.layers != nil: // "" is none
		return o.layers
	case slices.Contains(o.transports, dv.RCName):
		return partNames[Device+1 : harness]
	}
	return []string{Verbs.String(), UCT.String(), UCP.String()}
}

// writer returns the writer of the output format.
func (o options) writer() (func(io.Writer, *Measurement) error, error) {
	switch o.output {
	case "table":
		return func(w io.Writer, m *Measurement) error { return writeTables(w, m, plainText) }, nil
	case "md":
		return func(w io.Writer, m *Measurement) error { return writeTables(w, m, markdown) }, nil
	case "csv":
		return writeCSV, nil
	case "json":
		return func(w io.Writer, m *Measurement) error { return writeJSON(w, m, about(m)) }, nil
	}
	return nil, fmt.Errorf("unknown output format %q; there are %s", o.output, strings.Join(formats, ", "))
}

// about is the first object of the JSON output.
func about(m *Measurement) map[string]any {
	all := map[string]any{
		"program": "perftest instructions", "go": runtime.Version(), "arch": runtime.GOARCH,
		"fabric": m.Fabric, "reps": m.Reps,
	}
	if m.Incomplete != "" {
		all["incomplete"] = m.Incomplete
	}
	return all
}
