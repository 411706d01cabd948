package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/dgemm"
	"github.com/gucx/gucx/perftest/internal/endpoints"
	"github.com/gucx/gucx/perftest/internal/msgrate"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// dgemmFlags are the flags of perftest dgemm.
type dgemmFlags struct {
	sharing
	threads    []int
	categories []string
	cq         int
	bench      dgemm.Bench
}

func newDgemm() *cobra.Command {
	var d dgemmFlags
	cmd := &cobra.Command{
		Use:   "dgemm",
		Short: "Multiply matrices on a server by get and put, over each category of endpoints",
		Long: `Multiply matrices on a server by get and put, over each category of endpoints.

The matrices A, B and C lie on the server in tiles. Each thread gets tiles of A and B,
multiplies them, and puts tiles of C: one work request in a call, with a completion
for each, inline where a tile is short enough. The product is compared with a serial
one. Rates are gets and puts of all threads.`,
		Example: `  perftest dgemm                       64 x 64 elements in tiles of 2 x 2
  perftest dgemm -N 256 --tile 16 -t 2`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd) },
	}
	f := cmd.Flags()
	f.IntVarP(&d.bench.N, "dimension", "N", 64, "rows and columns of the matrices")
	f.IntVar(&d.bench.Tile, "tile", 2, "rows and columns of a tile, a divisor of the dimension")
	d.bindCommon(f)
	f.IntSliceVarP(&d.threads, "threads", "t", []int{16}, "numbers of threads")
	f.StringSliceVar(&d.categories, "categories", categoryNames(), "categories to compare")
	f.IntVar(&d.cq, "cq", 1, "threads that share a completion queue, where their context is shared")
	return cmd
}

func (d *dgemmFlags) run(cmd *cobra.Command) error {
	queues, err := d.check()
	if err != nil {
		return &usageError{err}
	}
	if err := d.bench.Check(); err != nil {
		return &usageError{err}
	}
	study := &endpoints.Study{Base: msgrate.Config{Inline: true}, Queues: queues, Threads: d.threads, CQ: d.cq, Rounds: d.rounds}
	if study.Categories, err = parseCategories(d.categories); err != nil {
		return &usageError{err}
	}
	d.bench.Rig = newRealTime(softhca.Fabric(d.fabric))
	_, cases := study.Cases()
	step, done := d.progress(len(cases))
	rows, err := study.Run(cmd.Context(), &d.bench, step)
	done()
	if err != nil {
		return err
	}
	c := d.conditions(cmd.Context())
	c.Problem = fmt.Sprintf("A*B=C of %d x %d elements in tiles of %d x %d", d.bench.N, d.bench.N, d.bench.Tile, d.bench.Tile)
	return d.writeRows(cmd, c, rows)
}
