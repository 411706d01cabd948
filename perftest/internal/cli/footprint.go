package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/meter"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/footprint"
)

// footprintFlags are the flags of perftest footprint.
type footprintFlags struct {
	study  footprint.Study
	output string
	quiet  bool
}

// connectModes are the values of GUCX_CONNECT.
var connectModes = []string{"lazy", "eager"}

func newFootprint() *cobra.Command {
	var p footprintFlags
	cmd := &cobra.Command{
		Use:   "footprint",
		Short: "Count resources of endpoints: queue pairs, heap, queue memory",
		Long: `Count resources of endpoints: queue pairs, bytes on the Go heap and of queues.

An interface of uct opens endpoints to a number of peers. With --connect a
worker of ucp over rc has an endpoint to each peer and sends to one of them:
the resources then depend on when endpoints connect.`,
		Example: `  perftest footprint                           uct, 1 to 512 peers
  perftest footprint --connect lazy,eager --peers 1,8,32`,
		Args:    usage(cobra.NoArgs),
		PreRunE: usage(func(cmd *cobra.Command, _ []string) error { return p.check(cmd) }),
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVarP(&p.study.Transports, "transport", "x", footprint.Transports(), "transports of uct")
	f.StringSliceVar(&p.study.Connect, "connect", nil, "count endpoints of ucp that connect: "+strings.Join(connectModes, ", "))
	f.IntSliceVar(&p.study.Peers, "peers", []int{1, 8, 64, 512}, "numbers of peers")
	f.StringVarP(&p.output, "output", "o", sheet.Formats()[0], "output format: "+strings.Join(sheet.Formats(), ", "))
	f.BoolVarP(&p.quiet, "quiet", "q", false, "show no progress")
	complete.List(cmd, "transport", footprint.Transports)
	complete.List(cmd, "connect", complete.Values(connectModes...))
	complete.One(cmd, "output", sheet.Formats)
	return cmd
}

func (p *footprintFlags) check(cmd *cobra.Command) error {
	for _, c := range p.study.Connect {
		if !slices.Contains(connectModes, c) {
			return fmt.Errorf("--connect %q: there are %s", c, strings.Join(connectModes, ", "))
		}
	}
	if len(p.study.Connect) > 0 && !cmd.Flags().Changed("transport") {
		p.study.Transports = nil
	}
	return errors.Join(p.study.Check(), sheet.CheckFormat(p.output))
}

func (p *footprintFlags) run(cmd *cobra.Command) error {
	m := meter.New(os.Stderr, p.study.Cases(), p.quiet)
	rows, err := p.study.Run(cmd.Context(), func(label string, _ int) { m.Step(label, 0) })
	m.Close()
	if len(rows) == 0 {
		return err
	}
	var s shown
	c := s.conditions(cmd.Context(), "software HCA, fabric shm", err)
	return errors.Join(err, footprint.Sheet(c, []string{c.Machine.String(), "gucx " + c.Commit, c.Problem}, rows).Write(cmd.OutOrStdout(), p.output))
}
