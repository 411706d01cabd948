package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/show/chart"
	"github.com/gucx/gucx/perftest/internal/show/quantity"
	"github.com/gucx/gucx/perftest/internal/studies/endpoints"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// endpointsFlags are the flags of perftest endpoints.
type endpointsFlags struct {
	sharing
	categories
	threads   []int
	noInline  bool
	resources bool
}

func newEndpoints() *cobra.Command {
	var e endpointsFlags
	cmd := &cobra.Command{
		Use:   "endpoints",
		Short: "Compare the six categories of endpoints for threads",
		Long: `Compare the six categories of endpoints for threads: rate and resources.

Each thread writes small messages by RDMA, one work request in a call and with
a completion for each, inline and by BlueFlame, as in the applications of the
study of scalable endpoints; -p and --unsignaled change that. Arrivals are
verified. On a machine with fewer CPUs than threads the rates show the costs of
locks and calls, not the speed of a NIC; --model predicts the latter. Resources
do not depend on the machine.

Categories: ` + strings.Join(categoryNames(), " ") + `.`,
		Example: `  perftest endpoints                        all categories, 1 to 16 threads
  perftest endpoints -t 16 --cq 4 -o md     sixteen threads, a CQ for four`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd) },
	}
	f := cmd.Flags()
	e.sharing.bind(f, 100_000)
	quantity.Counts(f, &e.threads, "threads", "t", []int{1, 2, 4, 8, 16}, "numbers of threads")
	e.categories.bind(f)
	f.IntVarP(&e.base.Postlist, "postlist", "p", 1, "work requests in a call")
	f.IntVar(&e.base.Unsignaled, "unsignaled", 1, "work requests for a completion")
	f.BoolVar(&e.noInline, "no-inline", false, "do not inline payloads: the device reads them")
	f.BoolVar(&e.resources, "resources", false, "count the device resources of the endpoints, and send nothing")
	completeSharing(cmd)
	completeCategories(cmd)
	return cmd
}

// study checks the flags.
func (e *endpointsFlags) study() (*endpoints.Study, error) {
	queues, err := e.check()
	if err != nil {
		return nil, err
	}
	s := &endpoints.Study{Base: e.base, Queues: queues, Threads: e.threads, CQ: e.cq, Rounds: e.rounds}
	s.Base.Inline = !e.noInline
	if s.Categories, err = e.parse(); err != nil {
		return nil, err
	}
	_, cases := s.Cases()
	if len(cases) == 0 {
		return s, errNothing
	}
	return s, errors.Join(s.Check(), s.Base.Check(), e.checkMessages(cases))
}

func (e *endpointsFlags) run(cmd *cobra.Command) error {
	e.modelDefaults(cmd.Flags(), &e.base.Messages, modelMessages)
	study, err := e.study()
	if err != nil {
		return &usageError{err}
	}
	if e.resources {
		return e.count(cmd, study)
	}
	where, err := e.measurer()
	if err != nil {
		return err
	}
	_, cases := study.Cases()
	step, done := e.progress(len(cases))
	rows, err := study.Run(cmd.Context(), where, step)
	done()
	return e.writeRows(cmd, "", rows, err)
}

// count writes the device resources of the endpoints of a study.
func (e *endpointsFlags) count(cmd *cobra.Command, study *endpoints.Study) error {
	dev, err := softhca.NewDevice(softhca.Config{Fabric: softhca.Fabric(e.fabric), Queues: study.Queues})
	if err != nil {
		return err
	}
	rows, err := study.Resources(dev)
	if err != nil {
		return err
	}
	c := e.conditions(cmd.Context(), nil)
	return endpoints.Sheet(c, c.lines(e.rounds), rows, false).Write(cmd.OutOrStdout(), e.output)
}

// writeRows writes and plots the results of categories. It returns err, the reason if they are incomplete.
func (s *sharing) writeRows(cmd *cobra.Command, problem string, rows []endpoints.Row, err error) error {
	return s.finish(len(rows), err, func() error {
		c, least := s.conditions(cmd.Context(), err), s.rounds
		c.Problem = problem
		for i := range rows {
			least = min(least, rows[i].Rounds)
		}
		return endpoints.Sheet(c, c.lines(least), rows, true).Write(cmd.OutOrStdout(), s.output)
	}, func() error { return chart.SaveLines(s.plot, endpointsPanels(rows)) })
}

// endpointsPanels plots rates and micro-UARs over threads, with a line for each category.
func endpointsPanels(rows []endpoints.Row) []chart.Lines {
	rate := chart.Lines{Title: "message rate", X: "threads", Y: "M msg/s"}
	uuars := chart.Lines{Title: "micro-UARs", X: "threads", Y: "uUARs"}
	for _, r := range rows {
		rate.Add(r.Category.String(), float64(r.Threads), r.Rate/1e6)
		uuars.Add(r.Category.String(), float64(r.Threads), float64(r.UUARs))
	}
	return []chart.Lines{rate, uuars}
}
