// Package change compares the results of two programs, or of one program at two times.
package change

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

// Runs are the runs of a file, each with a description and records.
type Runs []Run

// Run is a run with its records.
type Run struct {
	result.Run
	Records []result.Record
}

// key identifies the records of one row.
type key struct {
	Test, Transport, Layer, Variant string
	Size, Window                    int
}

func keyOf(r *result.Record) key {
	return key{r.Test, r.Transport, r.Layer, r.Variant, r.Size, r.Window}
}

// Options are the parameters of a comparison.
type Options struct {
	// Alpha is the probability below which a difference is significant.
	Alpha float64
	// Threshold is the increase of an operation's time, in percent, from which it is Slower.
	Threshold float64
}

// confidence is that of the intervals of medians.
const confidence = 0.95

// leastRuns is the minimum number of runs of both files that have a row, if the sample consists of runs. Four and four
// is the minimum for which the U test can be significant at 5 percent.
const leastRuns = 4

// Side is a row of one of the files. Times are nanoseconds per operation.
type Side struct {
	MedianNS float64 `json:"median_ns"`
	// LoNS and HiNS are the interval of the median; both are 0 with too few values.
	LoNS float64 `json:"lo_ns"`
	HiNS float64 `json:"hi_ns"`
	N    int     `json:"n"`
}

// Row is the comparison of one test of one layer at one size.
type Row struct {
	Test      string `json:"test"`
	Transport string `json:"transport"`
	Layer     string `json:"layer"`
	Size      int    `json:"size"`
	Variant   string `json:"variant"`
	Window    int    `json:"window"`

	Before Side `json:"a"`
	After  Side `json:"b"`
	// Pct is the increase of an operation's time in the second file, in percent.
	Pct float64 `json:"pct"`
	// P is the probability of such samples, or of more different ones, if nothing has changed: by the U test of Mann
	// and Whitney.
	P float64 `json:"p"`
	// Differs: P is below Options.Alpha.
	Differs bool `json:"differs"`
	// Slower: the row differs and Pct is above Options.Threshold.
	Slower bool `json:"slower"`
}

// Table is the comparison of two files.
type Table struct {
	Rows []Row
	// OfRuns: the samples contain runs; otherwise rounds.
	OfRuns bool
	// OnlyA and OnlyB are the numbers of rows that the other file lacks.
	OnlyA, OnlyB int
}

var errNothing = errors.New("the files have no row in common")

// Compare compares two files row by row, in the order of the first file. The sample of a row is its Means in the runs
// if both files have at least four runs of it, and those of all rounds otherwise.
func Compare(a, b Runs, o Options) (*Table, error) {
	runs := true
	before, order := samples(a)
	after, others := samples(b)
	var t Table
	for _, k := range order {
		if after[k] == nil {
			t.OnlyA++
			continue
		}
		runs = runs && min(len(before[k].runs), len(after[k].runs)) >= leastRuns
	}
	for _, k := range others {
		if before[k] == nil {
			t.OnlyB++
		}
	}
	t.OfRuns = runs
	for _, k := range order {
		if after[k] != nil {
			t.Rows = append(t.Rows, compare(k, before[k].values(runs), after[k].values(runs), o))
		}
	}
	if len(t.Rows) == 0 {
		return nil, errNothing
	}
	return &t, nil
}

// sample returns the Means of a row.
type sample struct {
	runs   []float64
	rounds []float64
}

func (s *sample) values(runs bool) []float64 {
	if runs || len(s.rounds) == 0 {
		return s.runs
	}
	return s.rounds
}

// samples collects the records of all runs, and the rows in their order.
func samples(runs Runs) (all map[key]*sample, order []key) {
	all = map[key]*sample{}
	for _, run := range runs {
		for i := range run.Records {
			r := &run.Records[i]
			k := keyOf(r)
			s := all[k]
			if s == nil {
				s = &sample{}
				all[k] = s
				order = append(order, k)
			}
			s.runs = append(s.runs, r.LoopNS)
			s.rounds = append(s.rounds, r.RoundsNS...)
		}
	}
	return all, order
}

// compare returns the row of two samples, which must not be empty.
func compare(k key, a, b []float64, o Options) Row {
	thresholds := &benchmath.Thresholds{CompareAlpha: o.Alpha}
	before, after := benchmath.NewSample(a, thresholds), benchmath.NewSample(b, thresholds)
	row := Row{Test: k.Test, Transport: k.Transport, Layer: k.Layer, Size: k.Size, Variant: k.Variant, Window: k.Window,
		Before: side(before), After: side(after)}
	c := benchmath.AssumeNothing.Compare(before, after)
	row.P, row.Differs = c.P, c.P < c.Alpha
	if row.Before.MedianNS > 0 {
		row.Pct = 100 * (row.After.MedianNS/row.Before.MedianNS - 1)
	}
	row.Slower = row.Differs && row.Pct > o.Threshold
	return row
}

func side(s *benchmath.Sample) Side {
	sum := benchmath.AssumeNothing.Summary(s, confidence)
	out := Side{MedianNS: sum.Center, N: len(s.Values)}
	if !math.IsInf(sum.Lo, 0) && !math.IsInf(sum.Hi, 0) {
		out.LoNS, out.HiNS = sum.Lo, sum.Hi
	}
	return out
}

// Slower returns the rows above the threshold, the worst first.
func (t *Table) Slower() []Row {
	rows := slices.DeleteFunc(slices.Clone(t.Rows), func(r Row) bool { return !r.Slower })
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(b.Pct, a.Pct) })
	return rows
}

// Geomean returns the geometric mean of the ratios of all rows that have one, as a change in percent.
func (t *Table) Geomean() float64 {
	sum, n := 0.0, 0
	for _, r := range t.Rows {
		if r.Before.MedianNS > 0 && r.After.MedianNS > 0 {
			sum += math.Log(r.After.MedianNS / r.Before.MedianNS)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return 100 * (math.Exp(sum/float64(n)) - 1)
}

// Differences returns the conditions of measurement that differ between the two files: a line for each, which a reader
// should know before the rows.
func Differences(a, b Runs) (lines []string) {
	for _, c := range []struct {
		name string
		of   func(*Run) string
	}{
		{"machine", func(r *Run) string { return fmt.Sprintf("%s, %d cores", r.Machine.CPU, r.Machine.Cores) }},
		{"kernel", func(r *Run) string { return r.Machine.Kernel }},
		{"Go", func(r *Run) string { return r.Machine.Go }},
		{"GOMAXPROCS", func(r *Run) string { return fmt.Sprint(r.Machine.GOMAXPROCS) }},
		{"device", func(r *Run) string { return r.Settings.Device }},
		{"fabric", func(r *Run) string { return r.Settings.Fabric }},
		{"memory", func(r *Run) string { return r.Settings.Memory }},
		{"wait", func(r *Run) string { return r.Settings.Wait }},
		{"iterations", func(r *Run) string { return fmt.Sprint(r.Settings.Iterations) }},
		{"CPUs", func(r *Run) string { return fmt.Sprint(r.Settings.CPUs) }},
	} {
		if x, y := values(a, c.of), values(b, c.of); !slices.Equal(x, y) {
			lines = append(lines, fmt.Sprintf("%s: %q in A, %q in B", c.name, x, y))
		}
	}
	return lines
}

// values returns the different values of a condition in runs, in order.
func values(runs Runs, of func(*Run) string) (all []string) {
	for i := range runs {
		all = append(all, of(&runs[i]))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
