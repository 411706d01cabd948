package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/show/chart"
	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/quantity"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
)

// msgrateFlags are the flags of perftest msgrate.
type msgrateFlags struct {
	sharing
	share, features []string
	ways            []int
}

func newMsgrate() *cobra.Command {
	var m msgrateFlags
	cmd := &cobra.Command{
		Use:   "msgrate",
		Short: "Measure the message rate of threads that share verbs objects",
		Long: `Measure the message rate of threads that share verbs objects.

Each thread writes small messages by RDMA in lists of p work requests
(postlist), of which each q-th requests a completion (unsignaled), inline and
by BlueFlame where mlx5 allows it. Each feature can be turned off, and each
type of object shared by x threads, as in the study of scalable endpoints.
Arrivals are verified. On a machine with fewer CPUs than threads the rates show
the costs of locks and calls, not the speed of a NIC; --model predicts the
latter.

Types of objects: ` + strings.Join(shareNames(), " ") + `. "none"
gives each thread a context, and --ways is the numbers of threads.`,
		Example: `  perftest msgrate                           16 threads, each type of object
  perftest msgrate --share cq,qp --features all,postlist
  perftest msgrate --share ctx -o csv --plot ctx.svg`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return m.run(cmd) },
	}
	f := cmd.Flags()
	m.bind(f, 30_000)
	f.IntVarP(&m.base.Threads, "threads", "t", 16, "threads")
	f.StringSliceVar(&m.share, "share", shareNames(), "types of objects to share")
	quantity.Counts(f, &m.ways, "ways", "", []int{1, 2, 4, 8, 16}, "threads for each shared object")
	f.StringSliceVar(&m.features, "features", []string{"all", "postlist"}, `features: all; or names of those to turn off, as in postlist+inline; or each, for all and then each turned off: `+strings.Join(msgrate.FeatureNames(), ", "))
	f.IntVarP(&m.base.Postlist, "postlist", "p", 32, "work requests in a call")
	f.IntVar(&m.base.Unsignaled, "unsignaled", 64, "work requests for a completion")
	f.BoolVar(&m.base.Packed, "packed", false, "payloads next to each other, not on separate cache lines")
	completeSharing(cmd)
	complete.List(cmd, "share", shareNames)
	complete.List(cmd, "features", featureChoices)
	return cmd
}

func shareNames() (names []string) {
	for _, s := range msgrate.Shares() {
		names = append(names, string(s))
	}
	return names
}

// sweep checks the flags.
func (m *msgrateFlags) sweep() (*msgrate.Sweep, error) {
	queues, err := m.check()
	if err != nil {
		return nil, err
	}
	s := &msgrate.Sweep{Base: m.base, Queues: queues, Ways: m.ways, Rounds: m.rounds}
	for _, name := range m.share {
		share, err := msgrate.ParseShare(name)
		if err != nil {
			return nil, err
		}
		s.Shares = append(s.Shares, share)
	}
	for _, name := range m.features {
		if name == "each" {
			s.Features = append(s.Features, msgrate.AllButEach()...)
			continue
		}
		f, err := msgrate.ParseFeatures(name)
		if err != nil {
			return nil, err
		}
		s.Features = append(s.Features, f)
	}
	if m.base.Threads < 1 {
		return nil, fmt.Errorf("--threads %d: want one or more", m.base.Threads)
	}
	return s, nil
}

func (m *msgrateFlags) run(cmd *cobra.Command) error {
	m.modelDefaults(cmd.Flags(), &m.base.Messages, modelMessages)
	sweep, err := m.sweep()
	if err != nil {
		return &usageError{err}
	}
	_, cases, err := sweep.Cases()
	if err == nil && len(cases) == 0 {
		err = errNothing
	}
	if err = errors.Join(err, m.checkMessages(cases)); err != nil {
		return &usageError{err}
	}
	where, err := m.measurer()
	if err != nil {
		return err
	}
	step, done := m.progress(len(cases))
	points, err := sweep.Run(cmd.Context(), where, step)
	done()
	return m.finish(len(points), err, func() error {
		c, least := m.conditions(cmd.Context(), err), m.rounds
		for i := range points {
			least = min(least, points[i].Rounds)
		}
		return msgrate.Sheet(c, c.lines(least), points).Write(cmd.OutOrStdout(), m.output)
	}, func() error { return chart.SaveLines(m.plot, msgratePanels(points)) })
}

// msgratePanels plots a panel for each type of object, with a line for each choice of features.
func msgratePanels(points []msgrate.Point) (panels []chart.Lines) {
	for i, p := range points {
		if i == 0 || p.Share != points[i-1].Share {
			panels = append(panels, chart.Lines{Title: fmt.Sprintf("shared: %s", p.Share), X: "ways", Y: "M msg/s"})
		}
		panel := &panels[len(panels)-1]
		x := float64(p.Ways)
		if p.Share == msgrate.ShareNone {
			panel.X, x = "threads", float64(p.Threads)
		}
		panel.Add(p.Features, x, p.Rate/1e6)
	}
	return panels
}
