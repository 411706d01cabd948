package bench

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
)

// DefaultStallLimit is the limit if Runner.StallLimit is 0.
const DefaultStallLimit = 10 * time.Second

// stallLooks is the number of consecutive checks without a new operation that make a stall. They take Runner.StallLimit
// together. A clock is not used: a process that was stopped has not stalled.
const stallLooks = 4

// stallWatch reports that an operation does not complete. A goroutine checks the number of turns. Only if a turn takes
// longer than a quarter of the limit, it interrupts the measuring goroutine, which owns the layers; that one compares
// the numbers of operations and writes the report. So a run with shorter turns is not affected.
type stallWatch struct {
	turns atomic.Uint64 // number of turns that have begun

	// Used by the measuring goroutine.
	lane  *lane  // lane whose turn it is; nil for none
	what  string // test and size
	seen  *lane  // lane and lane.moves at the last check
	moves uint64
	looks int // consecutive checks with the same result
}

// begin records the start of the turn of l.
func (w *stallWatch) begin(l *lane) {
	w.lane = l
	w.turns.Add(1)
}

// look reports whether the operations of the turn are stalled. It returns true once for each stall.
func (w *stallWatch) look() bool {
	if l := w.lane; l == nil || l != w.seen || l.moves != w.moves {
		w.seen, w.looks = l, 0
		if l != nil {
			w.moves = l.moves
		}
		return false
	}
	w.looks++
	return w.looks == stallLooks
}

// interrupt calls raise at each tick before which no turn has begun, until stop is closed.
func (w *stallWatch) interrupt(ticks <-chan time.Time, stop <-chan struct{}, raise func()) {
	last := w.turns.Load()
	for {
		select {
		case <-stop:
			return
		case <-ticks:
		}
		if now := w.turns.Load(); now != last {
			last = now
			continue
		}
		raise()
	}
}

// watchStalls starts the reports. The caller must call stop to end them.
func (r *Runner) watchStalls() (stop func()) {
	if r.Stalls == nil {
		return func() {}
	}
	i := r.Session.Interrupt()
	i.OnRaise(func() {
		if r.stall.look() {
			r.reportStall(r.stall.lane)
		}
	})
	ticker := time.NewTicker(max(r.stallLimit()/stallLooks, 1))
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		r.stall.interrupt(ticker.C, ended, i.Raise)
	}()
	return func() {
		ticker.Stop()
		close(ended)
		<-done
		i.OnRaise(nil)
		r.stall.lane = nil
	}
}

func (r *Runner) stallLimit() time.Duration {
	if r.StallLimit == 0 {
		return DefaultStallLimit
	}
	return r.StallLimit
}

// reportStall writes the state of both sides of l.
func (r *Runner) reportStall(l *lane) {
	var b strings.Builder
	fmt.Fprintf(&b, "\nSTALLED: %s, layer %s, transport %s: no operation has completed for %v; %d were posted or flushed before\n",
		r.stall.what, l.name, l.conn.Transport(), r.stallLimit(), l.moves)
	addState(&b, "initiator", layer.State(l.op, l.conn))
	if !r.Session.Loopback() {
		addState(&b, fmt.Sprintf("target, process %d", r.Session.PID()), r.targetState(l))
	}
	_, _ = io.WriteString(r.Stalls, b.String()) // the run continues without the report
}

// targetState returns the state of the target's side of l, or the reason why it is unknown.
func (r *Runner) targetState(l *lane) string {
	if r.stopped {
		return "stopped while the clock runs, as was asked for"
	}
	text, err := r.Session.TargetState(r.Session.Context(), l.name, r.stallLimit())
	if err != nil {
		return err.Error() + ": it is stopped, or waits where it looks for no request"
	}
	return text
}

// addState appends a state with its lines indented.
func addState(b *strings.Builder, of, state string) {
	if state == "" {
		state = "this layer describes no state"
	}
	fmt.Fprintf(b, "%s:\n", of)
	for line := range strings.Lines(state) {
		b.WriteString("  " + strings.TrimRight(line, "\n") + "\n")
	}
}
