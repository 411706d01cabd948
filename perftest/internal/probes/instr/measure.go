package instr

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/probes/ptrace"
)

// Result is the count of one case.
type Result struct {
	Case   Case
	Sample Sample
	// Skip is the reason why the case did not run; "" if it ran.
	Skip string
}

// Measurement is a count; cases at the end may be missing.
type Measurement struct {
	Fabric  string
	Reps    int
	Results []Result
	result.Partial
}

// measurer runs a job in a traced child and counts.
type measurer struct {
	args   []string // of the child, after the program name
	detail Detail
	// stepped is the lowest part that is single-stepped. Lower parts run at full speed, and only the first instruction
	// of a call to them is counted (amd64).
	stepped Part
	// window is called after each counted window of a case.
	window func(Case)

	syms       resolver
	cases      []Case
	collectors []collector // by tag
}

// measure executes j. It blocks while the child runs; ctx cancels it. With an error it also returns the cases that were
// complete, if any.
func (m *measurer) measure(ctx context.Context, j job) (*Measurement, error) {
	m.syms = resolver{}
	m.cases, m.collectors = j.Cases, make([]collector, tagCase+len(j.Cases))
	replies, failed := m.trace(ctx, j)
	if err := m.verify(); err != nil {
		return &Measurement{}, cmp.Or(failed, err)
	}
	res := &Measurement{Fabric: j.Fabric, Reps: j.Reps}
	for i, c := range j.Cases {
		res.Results = append(res.Results, Result{Case: c, Sample: m.collectors[tagCase+i].sample()})
	}
	err := note(replies, res.Results)
	if failed != nil || err != nil {
		failed = cmp.Or(failed, err)
		res.Results = completed(res.Results, replies, j.Reps)
		res.Incomplete = cmp.Or(context.Cause(ctx), failed).Error()
	}
	return res, failed
}

// completed returns the results before the first case that was neither complete nor skipped by the child.
func completed(results []Result, skips []skipped, reps int) []Result {
	for i, r := range results {
		refused := slices.ContainsFunc(skips, func(s skipped) bool { return s.Case == i })
		if r.Sample.Reps+r.Sample.Interrupted < reps && !refused {
			return results[:i]
		}
	}
	return results
}

// note records the reasons of the skipped cases.
func note(replies []skipped, results []Result) error {
	for _, s := range replies {
		if s.Case < 0 || s.Case >= len(results) {
			return fmt.Errorf("traced child: reply for case %d", s.Case)
		}
		results[s.Case].Skip = s.Reason
	}
	for i, r := range results {
		if r.Skip == "" && r.Sample.Reps == 0 {
			results[i].Skip = fmt.Sprintf("the scheduler took part in all %d repetitions", r.Sample.Interrupted)
		}
	}
	return nil
}

// trace runs the child and collects its windows and replies.
func (m *measurer) trace(ctx context.Context, j job) ([]skipped, error) {
	in, err := jobFile(j)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := newCapture()
	if err != nil {
		return nil, err
	}
	errs, err := newCapture()
	if err != nil {
		_ = out.finish()
		return nil, err
	}
	err = ptrace.Run(ctx, ptrace.Program{
		Path: ptrace.SelfPath,
		Args: append([]string{os.Args[0]}, m.args...),
		Env:  childEnv(os.Environ()),
		File: []*os.File{in, out.w, errs.w},
		Over: m.over,
	}, m.count)
	replies, message := out.finish(), errs.finish()
	all, wrong := decodeReplies(replies)
	if err != nil {
		return all, withMessage(err, message)
	}
	return all, wrong
}

// over reports whether the function that begins at pc need not be stepped: it belongs to a lower part, or to the
// scheduler, whose instructions do not count for the operation.
func (m *measurer) over(pc uint64) bool {
	s := m.syms.at(pc)
	return s.entry == pc && (s.part < m.stepped || strings.HasPrefix(s.function, moreStack))
}

// withMessage adds the last output of the child.
func withMessage(err error, message []byte) error {
	var exit *ptrace.ExitError
	if text := strings.TrimSpace(string(message)); errors.As(err, &exit) && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// count adds one window.
func (m *measurer) count(w ptrace.Window) error {
	if w.Tag >= uint64(len(m.collectors)) {
		return fmt.Errorf("traced child: window with tag %d", w.Tag)
	}
	detail := m.detail
	if w.Tag < tagCase {
		detail = ByFunction
	}
	c := &m.collectors[w.Tag]
	p, ok := m.syms.profile(w.Steps, detail)
	if ok {
		c.add(p, w.Syscalls, func() map[Place]Mix { return m.syms.mix(w.Steps, detail) })
	} else {
		c.interrupted++
	}
	if w.Tag >= tagCase {
		m.window(m.cases[w.Tag-tagCase])
	}
	return nil
}

// knownFunction is the routine with a known number of instructions.
const knownFunction = "perftest/internal/probes/ptrace.known"

// verify compares the self-checks with the expected counts.
func (m *measurer) verify() error {
	empty, known := m.collectors[tagEmpty].sample(), m.collectors[tagKnown].sample()
	if empty.Reps == 0 || known.Reps == 0 {
		return errors.New("self-check: every window was interrupted")
	}
	if n := empty.Max + empty.Profile.Part(Device); n != 0 {
		return fmt.Errorf("self-check: an empty operation counts %d instructions", n)
	}
	at := Place{Part: harness, Function: knownFunction}
	if n := known.Profile[at]; n != ptrace.KnownLen {
		return fmt.Errorf("self-check: a routine of %d instructions counts %d", ptrace.KnownLen, n)
	}
	return nil
}

// childEnv returns the environment with settings that keep the runtime quiet: one CPU, no garbage collection, no
// preemption by signals.
func childEnv(env []string) []string {
	quiet := []string{"GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1"}
	var kept []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if name != "GOMAXPROCS" && name != "GOGC" && name != "GODEBUG" && name != "GOMEMLIMIT" {
			kept = append(kept, e)
		}
	}
	return append(kept, quiet...)
}

// jobFile returns the read end of a pipe that contains the job.
func jobFile(j job) (*os.File, error) {
	b, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() { // ends when the child has read the job, or has died: then r is closed
		_, _ = w.Write(b)
		_ = w.Close()
	}()
	return r, nil
}

// decodeReplies parses the output of the child.
func decodeReplies(b []byte) (all []skipped, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	for {
		var s skipped
		if err := d.Decode(&s); err == io.EOF {
			return all, nil
		} else if err != nil {
			return all, fmt.Errorf("traced child: reply: %w", err)
		}
		all = append(all, s)
	}
}

// capture collects the data that a child writes to w.
type capture struct {
	w    *os.File
	done chan []byte
}

func newCapture() (*capture, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &capture{w: w, done: make(chan []byte, 1)}
	go func() {
		b, _ := io.ReadAll(r) // a pipe ends; the data read before is used
		_ = r.Close()
		c.done <- b
	}()
	return c, nil
}

// finish closes this process's end and returns all written data, after the child has exited.
func (c *capture) finish() []byte {
	_ = c.w.Close()
	return <-c.done
}
