package paper

import (
	"errors"
	"fmt"
	"math"
)

// Outcome is the result of a comparison.
type Outcome string

// Outcomes.
const (
	Holds   Outcome = "holds"
	Misses  Outcome = "misses"
	NoValue Outcome = "no value in the paper"
	NotRun  Outcome = "not measured"
	// Noise: the value is a time that varies between runs by more than the effect, or its interval contains values that
	// agree with the paper and others that do not.
	Noise Outcome = "within noise"
	// NotShown: the figure has no values, and says why.
	NotShown Outcome = "not shown"
)

// Rule decides whether our value agrees with the paper.
type Rule func(ours, paper float64) bool

// within permits a relative difference.
func within(share float64) Rule {
	return func(ours, paper float64) bool { return math.Abs(ours-paper) <= share*math.Abs(paper) }
}

// near permits an absolute difference.
func near(d float64) Rule {
	return func(ours, paper float64) bool { return math.Abs(ours-paper) <= d }
}

// between ignores the paper's number, which is a text.
func between(low, high float64) Rule {
	return func(ours, _ float64) bool { return low <= ours && ours <= high }
}

func atLeast(ours, paper float64) bool { return ours >= paper }
func atMost(ours, paper float64) bool  { return ours <= paper }
func exactly(ours, paper float64) bool { return ours == paper }

// Row is a case with its values.
type Row struct {
	Paper   string  `json:"paper"` // name of the case
	Figure  string  `json:"figure"`
	Case    string  `json:"case"`
	Ours    string  `json:"ours"`
	Theirs  string  `json:"papers"`
	Ratio   float64 `json:"ratio,omitempty"` // our value divided by the paper's; 0 if the paper has no number
	Outcome Outcome `json:"verdict"`
	Place   string  `json:"place,omitempty"`
	How     How     `json:"how"`
}

// Rows evaluates all cases of a figure. A figure without cases has one row, which says why.
func (f *Figure) Rows(paper string, res Results) (rows []Row) {
	for _, c := range f.Cases {
		r := c.row(res)
		r.Paper, r.Figure, r.How = paper, f.ID, f.How
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		rows = append(rows, Row{Paper: paper, Figure: f.ID, Case: f.Title, Outcome: NotShown, How: f.How})
	}
	return rows
}

func (c *Case) row(res Results) Row {
	r := Row{Case: c.Name, Theirs: c.Says, Place: c.Place, Outcome: NoValue}
	if c.Says == "" && c.Rule != nil {
		r.Theirs = c.Unit.Text(c.Paper)
	}
	v, err := c.Value.of(res)
	if err != nil {
		r.Outcome = NotRun
		if !errors.Is(err, errAbsent) {
			r.Theirs = err.Error() // the results of a command lack data for the figure
		}
		return r
	}
	r.Ours = c.Unit.Text(v)
	lo, hi, err := c.interval(res)
	if err != nil {
		r.Theirs = err.Error()
		return r
	}
	if lo != hi {
		r.Ours += fmt.Sprintf(" (%s to %s)", c.Unit.Bare(lo), c.Unit.Bare(hi))
	}
	if c.Paper != 0 && c.Rule != nil {
		r.Ratio = v / c.Paper
	}
	switch {
	case c.Noisy:
		r.Outcome = Noise
	case c.Rule != nil:
		r.Outcome = c.outcome(v, lo, hi)
	}
	return r
}

// interval returns the bounds of the value; 0 and 0 if it has none.
func (c *Case) interval(res Results) (lo, hi float64, err error) {
	if c.Lo.of == nil || c.Hi.of == nil {
		return 0, 0, nil
	}
	lo, errLo := c.Lo.of(res)
	hi, errHi := c.Hi.of(res)
	return lo, hi, errors.Join(errLo, errHi)
}

// intervalSteps is the number of places of an interval at which the rule is applied.
const intervalSteps = 100

// outcome applies the rule to a value and to its interval.
func (c *Case) outcome(v, lo, hi float64) Outcome {
	holds := c.Rule(v, c.Paper)
	if lo != hi {
		for i := range intervalSteps + 1 {
			if c.Rule(lo+(hi-lo)*float64(i)/intervalSteps, c.Paper) != holds {
				return Noise
			}
		}
	}
	if holds {
		return Holds
	}
	return Misses
}
