package hwcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Outcome is the result of a step.
type Outcome struct {
	Name     string
	Duration time.Duration
	Detail   string // observations
	Err      error  // nil if the step passed, or was skipped
	// Skipped is the reason why the step was not run; empty if it was run.
	Skipped string
}

// Report contains the outcome of each step.
type Report struct{ Outcomes []Outcome }

// Failed returns the number of failed steps.
func (r *Report) Failed() (n int) {
	for _, o := range r.Outcomes {
		if o.Err != nil {
			n++
		}
	}
	return n
}

// Write prints a line for each step.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	for _, o := range r.Outcomes {
		switch {
		case o.Err != nil:
			fmt.Fprintf(&b, "FAIL  %-28s %10s  %s\n", o.Name, o.Duration.Round(time.Microsecond), strings.ReplaceAll(o.Err.Error(), "\n", "; "))
		case o.Skipped != "":
			fmt.Fprintf(&b, "skip  %-28s %10s  %s\n", o.Name, "", o.Skipped)
		default:
			fmt.Fprintf(&b, "ok    %-28s %10s  %s\n", o.Name, o.Duration.Round(time.Microsecond), o.Detail)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Config selects what to test.
type Config struct {
	Port uint8
	// Timeout is the maximum wait for one completion or event. 0 means 5 s.
	Timeout time.Duration
	// Iterations is the number of operations of a measurement. 0 means 1000.
	Iterations int
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Iterations == 0 {
		c.Iterations = 1000
	}
	return c
}

// step is one test. It may use the results of earlier steps.
type step struct {
	name string
	run  func(*rig) (detail string, err error)
	// needs is the name of a step; if that failed, this one is skipped. Empty: none.
	needs string
}

// Run tests a device. It returns an error only if ctx is cancelled; failures of the device are in the report.
func Run(ctx context.Context, dev *verbs.Device, cfg Config) (*Report, error) {
	r := &rig{cfg: cfg.withDefaults(), dev: dev}
	report := &Report{}
	passed := map[string]bool{}
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return report, errors.Join(err, r.undo.Run())
		}
		o := Outcome{Name: s.name}
		if s.needs != "" && !passed[s.needs] {
			o.Skipped = "without " + s.needs
			report.Outcomes = append(report.Outcomes, o)
			continue
		}
		start := time.Now()
		o.Detail, o.Err = s.run(r)
		o.Duration = time.Since(start)
		if errors.Is(o.Err, ucs.ErrUnsupported) {
			o.Skipped, o.Err = o.Err.Error(), nil
		}
		passed[s.name] = o.Err == nil && o.Skipped == ""
		report.Outcomes = append(report.Outcomes, o)
	}
	start := time.Now()
	err := r.undo.Run()
	report.Outcomes = append(report.Outcomes, Outcome{Name: "destroy everything", Duration: time.Since(start), Err: err})
	return report, nil
}
