package cli

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/show/quantity"
	"github.com/gucx/gucx/perftest/internal/studies/dgemm"
)

// dgemmFlags are the flags of perftest dgemm.
type dgemmFlags struct {
	application
	threads []int
	bench   dgemm.Bench
}

func newDgemm() *cobra.Command {
	var d dgemmFlags
	cmd := &cobra.Command{
		Use:   "dgemm",
		Short: "Multiply matrices by get and put, by category of endpoints",
		Long: `Multiply matrices on a server by get and put, over each category of endpoints.

The server has the matrices A, B and C, by rows. Each thread gets a tile of A
and one of B, multiplies them, puts the partial sum of the tile of C, and so
on: a message for each row of a tile, one work request in a call, with a
completion for each, inline where a row is short enough. The product is
compared with a serial one. M msg/s is gets and puts of all threads; "gets" and
"puts" are rates in the time from the first post of a tile to its last
completion, summed over threads. On a machine with fewer CPUs than threads the
rates show the costs of locks and calls, not the speed of a NIC; --model
predicts the latter.`,
		Example: `  perftest dgemm                       64 x 64 elements in tiles of 4 x 4
  perftest dgemm -N 256 --tile 16 -t 2
  perftest dgemm --model connectx4     the study's figure`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd) },
	}
	f := cmd.Flags()
	f.IntVarP(&d.bench.N, "dimension", "N", 64, "rows and columns of the matrices")
	f.IntVar(&d.bench.Tile, "tile", 4, "columns of a tile, and rows of one of B; a divisor of the dimension")
	f.IntVar(&d.bench.Rows, "tile-rows", 0, "rows of a tile of A and C, a divisor of the dimension; 0: as many as columns")
	d.bind(f)
	quantity.Counts(f, &d.threads, "threads", "t", []int{16}, "numbers of threads")
	completeSharing(cmd)
	completeCategories(cmd)
	return cmd
}

func (d *dgemmFlags) run(cmd *cobra.Command) error {
	d.modelDefaults(cmd.Flags(), nil, 0)
	p, err := d.part()
	if err != nil {
		return &usageError{err}
	}
	return d.measure(cmd, []part{p}, fmt.Sprintf("A*B=C of %d x %d elements in tiles of %d x %d",
		d.bench.N, d.bench.N, cmp.Or(d.bench.Rows, d.bench.Tile), d.bench.Tile))
}

// part checks the flags.
func (d *dgemmFlags) part() (p part, err error) {
	queues, err := d.check()
	if err != nil {
		return p, err
	}
	if err := d.bench.Check(); err != nil {
		return p, err
	}
	if p.study, err = d.study(queues); err != nil {
		return p, err
	}
	p.study.Threads, p.bench = d.threads, &d.bench
	if err := p.study.Check(); err != nil {
		return p, err
	}
	d.bench.Rig, err = d.rig()
	return p, err
}
