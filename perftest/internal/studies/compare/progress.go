package compare

import (
	"fmt"
	"io"
	"os"

	"github.com/gucx/gucx/perftest/internal/measure/machine"
)

// newListener returns a listener that writes the progress of total cases to f.
func newListener(f *os.File, quiet bool, p plan, total int) listener {
	switch {
	case quiet:
		return silent{}
	case machine.IsTerminal(f):
		return &line{w: f, rounds: p.Rounds, total: total}
	}
	return &lines{w: f, plan: p, total: total}
}

// silent writes nothing.
type silent struct{}

func (silent) begin(Case)        {}
func (silent) pair(Case, []Pair) {}
func (silent) end([]Row)         {}

// lines writes a line when a case begins and when it ends. Write errors are ignored.
type lines struct {
	w        io.Writer
	plan     plan
	total, n int
}

func (l *lines) begin(c Case) {
	l.n++
	_, _ = fmt.Fprintf(l.w, "perftest: %s, %d of %d: %d pairs of runs of %v\n", c, l.n, l.total, l.plan.Rounds, l.plan.Time)
}

func (l *lines) pair(Case, []Pair) {}

func (l *lines) end(rows []Row) {
	for i := range rows {
		_, _ = fmt.Fprintf(l.w, "perftest: %s\n", rows[i].sentence())
	}
}

// sentence describes the result of a row.
func (r *Row) sentence() string {
	if len(r.Pairs) == 0 {
		return fmt.Sprintf("%s: failed: %v", r.Case, r.Failed)
	}
	m := r.Case.Metric
	text := fmt.Sprintf("%s, %s: UCX %s, gucx %s, ratio %.2f, of the best runs %.2f, by %d pairs",
		r.Case, r.Phase, r.UCX.median(m), r.Ours.median(m), r.Ratio.Median, r.Best, len(r.Pairs))
	if n := len(r.Moved); n > 0 {
		text += fmt.Sprintf(", without %d in which the CPUs were moved", n)
	}
	if r.Failed != nil {
		text += fmt.Sprintf("; then failed: %v", r.Failed)
	}
	return text
}

// line is one line of progress on a terminal, rewritten after each pair.
type line struct {
	w                io.Writer
	rounds, total, n int
}

// clearLine moves to the first column and erases to the end (ECMA-48, EL).
const clearLine = "\r\x1b[K"

func (l *line) begin(c Case) {
	l.n++
	_, _ = fmt.Fprintf(l.w, "%s%d/%d %s", clearLine, l.n, l.total, c)
}

func (l *line) pair(c Case, all []Pair) {
	p := all[len(all)-1]
	by, unit := Time.scale(min(p.UCXNS, p.OursNS))
	_, _ = fmt.Fprintf(l.w, "%s%d/%d %s: %d/%d; UCX %s %s, gucx %s, %s",
		clearLine, l.n, l.total, c, most(all), l.rounds, digits(p.UCXNS/by), unit, digits(p.OursNS/by), p.Phase)
}

func (l *line) end([]Row) { _, _ = io.WriteString(l.w, clearLine) }
