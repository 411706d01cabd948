package ucttest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Result is the outcome of one check.
type Result struct {
	Check   string
	Rule    string
	Failed  bool
	Skipped bool
	Hung    bool // the check failed because it did not return
	// Fault is the first failure of a failed check. Later failures are often its consequences. Log has all failures,
	// and the reason why a check was skipped.
	Fault string
	Log   []string
}

// String returns the name of the check, its outcome and, if it failed, its rule.
func (v Result) String() string {
	switch {
	case v.Failed:
		return fmt.Sprintf("%s: %s\nrule: %s", v.Check, v.Fault, v.Rule)
	case v.Skipped:
		return fmt.Sprintf("%s: skipped: %s", v.Check, strings.Join(v.Log, "; "))
	}
	return v.Check + ": ok"
}

// report reports the outcome to t.
func (v *Result) report(t testing.TB) {
	t.Helper()
	switch {
	case v.Failed:
		if testing.Verbose() {
			t.Logf("all complaints:\n%s", strings.Join(v.Log, "\n"))
		}
		t.Error(v)
	case v.Skipped:
		t.Skip(strings.Join(v.Log, "; "))
	case len(v.Log) > 0:
		t.Log(strings.Join(v.Log, "\n"))
	}
}

// maxHung is the number of checks that may hang before the suite omits the rest: each lasts as long as
// the watchdog permits, and uses a CPU if it spins.
const maxHung = 3

// session runs checks in sequence.
type session struct {
	h     *Harness
	hung  int
	stuck string // why the remaining checks are skipped; "" if they are not
}

// run runs a check. If the check hangs, run abandons its goroutine and open objects.
func (s *session) run(c *check) Result {
	r := &recorder{result: Result{Check: c.name, Rule: c.rule}}
	if s.stuck != "" {
		r.result.Skipped, r.result.Log = true, []string{s.stuck}
		return r.result
	}
	h, ended := s.h, make(chan struct{})
	go func() {
		defer close(ended)
		r.record(func() { c.try(r, h) })
	}()
	limit := h.watchdog()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		r.hang(limit)
		s.hung++
	}
	v := r.outcome()
	if v.Failed {
		shortWaits := *h // a copy, because a check that hangs still reads *h
		shortWaits.shortWaits = true
		s.h = &shortWaits
	}
	switch {
	case v.Failed && c.name == openCheck.name:
		s.stuck = "not run: nothing opens"
	case s.hung == maxHung:
		s.stuck = fmt.Sprintf("not run: %d checks hang", s.hung)
	}
	return v
}
