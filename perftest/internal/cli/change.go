package cli

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/show/change"
	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// Defaults of the flags of compare.
const (
	defaultAlpha     = 0.05
	defaultThreshold = 5 // percent
)

// newCompare compares two files of results.
func newCompare() *cobra.Command {
	var o change.Options
	var output string
	cmd := &cobra.Command{
		Use:   "compare A.json B.json",
		Short: "Compare the results of two programs, as benchstat does",
		Long: `Compare results that perftest --save or -o json has written: those of A.json,
from before a change, with those of B.json, from after it.

A row is a test of one layer at one size. It has the medians of both files with
intervals of 95 %, the change in percent, and p: how probable such a difference
is if nothing has changed (U test of Mann and Whitney; golang.org/x/perf). The
samples are the runs if both files have at least four of them, and the rounds of
the runs otherwise. Rounds of one run are more alike than runs are: to assess a
change, save ten runs of each program, in turns.

Exit status: 4 if an operation takes longer than before, by more than
--threshold percent with a p below --alpha.`,
		Example: `  perftest -x sm -t am_lat --save a.json      ten times, in turns with
  perftest -x sm -t am_lat --save b.json      the same of the other program
  perftest compare a.json b.json
  perftest compare a.json b.json --threshold 10 -o md`,
		Args: usage(cobra.ExactArgs(2)),
		PreRunE: usage(func(*cobra.Command, []string) error {
			if o.Alpha <= 0 || o.Alpha >= 1 || o.Threshold < 0 {
				return fmt.Errorf("--alpha %v --threshold %v: want 0 < alpha < 1 and a threshold of at least 0", o.Alpha, o.Threshold)
			}
			return sheet.CheckFormat(output)
		}),
		RunE: func(cmd *cobra.Command, args []string) error { return writeChange(cmd, args[0], args[1], o, output) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Float64Var(&o.Alpha, "alpha", defaultAlpha, "significance level: p below which a difference is significant")
	f.Float64Var(&o.Threshold, "threshold", defaultThreshold, "permitted slowdown of an operation, in percent")
	f.StringVarP(&output, "output", "o", sheet.Formats()[0], "output format: table, md, csv, json")
	complete.One(cmd, "output", sheet.Formats)
	return cmd
}

func writeChange(cmd *cobra.Command, before, after string, o change.Options, output string) error {
	a, err := change.Read(before)
	b, failed := change.Read(after)
	if err = cmp.Or(err, failed); err != nil {
		return err
	}
	t, err := change.Compare(a, b, o)
	if err != nil {
		return err
	}
	head := change.Head{A: before, B: after, Alpha: o.Alpha, Threshold: o.Threshold, Unlike: change.Differences(a, b)}
	err = t.Sheet(head, [2]string{a.Title(), b.Title()}).Write(cmd.OutOrStdout(), output)
	return errors.Join(err, t.Worst(o.Threshold))
}
