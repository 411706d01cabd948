package ucttest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/gucx/gucx/uct"
)

// check is one rule of the contract and how to try it.
type check struct {
	name string
	rule string   // the sentence that is enforced, printed on failure
	need uct.Caps // all of them, or skip
	any  uct.Caps // at least one of them, or skip; 0: no such condition
	opts Options  // zero fields take tiny defaults
	run  func(t T, p *Pair)
}

// Tiny queues bring backpressure within the first messages.
const (
	tinyTxDepth = 4
	tinyRxDepth = 8
)

func (c *check) options() Options {
	o := c.opts
	if o.TxDepth == 0 {
		o.TxDepth = tinyTxDepth
	}
	if o.RxDepth == 0 {
		o.RxDepth = tinyRxDepth
	}
	return o
}

func allChecks() []check {
	var all []check
	for _, group := range [][]check{
		attrChecks, addressChecks, amChecks, orderChecks, descChecks, pendingChecks,
		rmaChecks, keyChecks, faultChecks, atomicChecks, flushChecks, closeChecks,
		wakeChecks, costChecks, peerChecks,
	} {
		all = append(all, group...)
	}
	return all
}

// Test runs the suite, one subtest for each check.
func Test(t *testing.T, h Harness) {
	for _, c := range allChecks() {
		t.Run(c.name, func(t *testing.T) { c.try(t, &h) })
	}
}

// try runs the check on a new pair.
func (c *check) try(t T, h *Harness) {
	limit := h.Watchdog
	if limit == 0 {
		limit = defaultWatchdog
	}
	dog := time.AfterFunc(limit, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("ucttest: %s: no end after %v", c.name, limit))
	})
	t.Cleanup(func() { dog.Stop() })
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("rule: %s", c.rule)
		}
	})
	p := openPair(t, h, c.options())
	have := p.A.Iface.Attr().Caps
	if !have.Has(c.need) {
		t.Skipf("not claimed: %v", c.need&^have)
	}
	if c.any != 0 && have&c.any == 0 {
		t.Skipf("none claimed of: %v", c.any)
	}
	c.run(t, p)
	p.finish(t)
}

// Verdict is the outcome of one check.
type Verdict struct {
	Check   string
	Rule    string
	Failed  bool
	Skipped bool
	Log     []string
}

// Verdicts runs the checks outside package testing and returns their outcomes.
// With names, only those checks run.
func Verdicts(h Harness, names ...string) []Verdict {
	only := map[string]bool{}
	for _, n := range names {
		only[n] = true
	}
	var out []Verdict
	for _, c := range allChecks() {
		if len(only) == 0 || only[c.name] {
			out = append(out, record(&c, &h))
		}
	}
	return out
}

// recorder is a T that remembers.
type recorder struct {
	mu      sync.Mutex
	verdict Verdict
	cleanup []func()
}

func record(c *check, h *Harness) Verdict {
	r := &recorder{verdict: Verdict{Check: c.name, Rule: c.rule}}
	r.isolate(func() { c.try(r, h) })
	for len(r.cleanup) > 0 {
		last := len(r.cleanup) - 1
		f := r.cleanup[last]
		r.cleanup = r.cleanup[:last]
		r.isolate(f)
	}
	return r.verdict
}

// isolate runs f on a goroutine of its own, which FailNow and Skipf end.
func (r *recorder) isolate(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				r.Errorf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

func (r *recorder) Helper() {}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verdict.Log = append(r.verdict.Log, fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verdict.Failed = true
}

func (r *recorder) FailNow() {
	r.mu.Lock()
	r.verdict.Failed = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verdict.Failed
}

func (r *recorder) Skipf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	r.verdict.Skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
