package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A blocking call without work spins for a while before it parks, because the reply
// of a running peer arrives sooner than a parked goroutine wakes up. With more waiters than
// CPUs spinning increases the latency: the waiter occupies the CPU that its peer needs. So each
// worker adapts its spin time to its waits, as hypervisors do when a virtual CPU
// halts. A short wait doubles the spin time of the next one, a
// long wait halves it. The duration of the wait counts, and not whether it ended
// while spinning, so that a worker that parks at once detects that spinning would be faster.
// A spinning waiter also yields its CPU to other processes every spinYield: if one runs, the worker
// does not spin for a while.
const (
	// spinMax limits the spin time before a sleep, to less than twice the cost of a sleep: more costs services CPU time, and
	// gains them nothing (experiment 0152 in docs/perf).
	spinMax = 50 * time.Microsecond
	// spinMin is the smallest spin time; below it the worker does not spin.
	spinMin = 5 * time.Microsecond
	// shortWait is the duration up to which a wait, including its sleep, counts as short.
	shortWait = 4 * spinMax
	// spinYield is the spin time between two yields of the CPU to other
	// processes. A yield costs about 300 ns if no process waits.
	spinYield = 5 * time.Microsecond
	// spinPreempted is the duration from which a round of polls counts as preempted: another thread had
	// the CPU. If the waiter had parked, that thread would have had the CPU earlier.
	spinPreempted = 100 * time.Microsecond
	// spinBackoff and spinBackoffMax limit the time without spinning after a preemption. It doubles if
	// the next preemption follows soon.
	spinBackoff, spinBackoffMax = time.Millisecond, 256 * time.Millisecond
	// spinWasteMax limits Spinner.wasted; from it on the worker does not spin for a while.
	spinWasteMax = 8 * spinMax
	// spinSaved is the cost of a sleep and a wake-up.
	spinSaved = 30 * time.Microsecond
)

// Spinner decides how long the waiters of a worker spin. It belongs to the worker's
// owner.
type Spinner struct {
	Fixed   int           // configured number of polls; 0 adapts, negative spins without limit
	budget  time.Duration // spin time of the next wait after its first round
	backoff time.Duration // time without spinning after the latest preemption; 0 if there was none recently
	until   time.Duration // end of backoff
	wasted  time.Duration // time of spins without an event, less spinSaved for each spin with one; from 0 to spinWasteMax
}

// IdleTime is the state of a waiter since its last event. The zero value is valid directly after an event.
type IdleTime struct {
	Polls    int
	since    time.Duration // end of the first round of polls; 0 before that
	last     time.Duration // end of the latest round, while spinning
	yielded  time.Duration // time of the latest yield of the CPU
	spinning bool          // counted in waiting.spinning
}

// Again reports whether the waiter should spin for another round after a round without an event.
func (p *Spinner) Again(s *IdleTime) bool {
	if p.Fixed > 0 {
		return s.Polls < p.Fixed
	}
	now := clock()
	if p.Fixed < 0 {
		s.yieldIfDue(now)
		return true
	}
	if s.since == 0 {
		s.since, s.last, s.yielded = now, now, now
		s.spinning = p.budget > 0 && (p.backoff == 0 || now >= p.until) && waiting.admit()
	}
	if s.spinning && (p.preempted(s, now) || p.inVain(s, now)) {
		s.stopSpinning()
	}
	if s.spinning {
		s.yieldIfDue(now)
	}
	return s.spinning
}

// Yielded must be called after a spinning waiter has yielded to other goroutines, which began after the latest call of Again. That
// time counts neither as preemption nor as spinning: the runtime may have moved the goroutine to another thread, and
// waking a thread takes long.
func (s *IdleTime) Yielded() {
	if s.spinning {
		now := clock()
		s.since += now - s.last
		s.last = now
	}
}

// yieldIfDue yields the CPU to other processes every spinYield.
func (s *IdleTime) yieldIfDue(now time.Duration) {
	if now-s.yielded >= spinYield {
		s.yielded = now
		yieldCPU()
	}
}

// Found ends the idle time after an event.
func (p *Spinner) Found(s *IdleTime) {
	if s.since != 0 {
		now := clock()
		if s.spinning {
			p.wasted = max(p.wasted-spinSaved, 0)
		}
		if !s.spinning || !p.preempted(s, now) {
			p.adapt(now - s.since)
		}
		s.stopSpinning()
	}
	*s = IdleTime{}
}

// End ends the idle time with the wait. over means that the wait has succeeded; otherwise it does not change the spin time.
func (p *Spinner) End(s *IdleTime, over bool) {
	if over {
		p.Found(s)
	}
	s.stopSpinning()
}

// adapt adapts the spin time to the duration of a wait.
func (p *Spinner) adapt(took time.Duration) {
	switch {
	case took <= shortWait:
		p.budget = min(max(2*p.budget, spinMin), spinMax)
	case p.budget > spinMin:
		p.budget /= 2
	default:
		p.budget = 0
	}
}

// preempted records the time of a round, and reports whether the thread was preempted during
// it. After a preemption the worker does not spin for a while.
func (p *Spinner) preempted(s *IdleTime, now time.Duration) bool {
	took := now - s.last
	s.last = now
	if took < spinPreempted {
		return false
	}
	p.pauseSpinning(now)
	return true
}

// inVain reports whether a waiter has spun for its spin time without an event. If that happens often, the worker does not spin
// for a while: waits of gRPC are a little longer than spinMax, and other threads need the CPU.
func (p *Spinner) inVain(s *IdleTime, now time.Duration) bool {
	if now-s.since < p.budget {
		return false
	}
	if p.wasted += p.budget; p.wasted >= spinWasteMax {
		p.wasted = 0
		p.pauseSpinning(now)
	}
	return true
}

// pauseSpinning lets the worker not spin for a while, which is longer if it has not spun for long since the last time.
func (p *Spinner) pauseSpinning(now time.Duration) {
	if now-p.until > 16*p.backoff {
		p.backoff = 0
	}
	p.backoff = min(max(2*p.backoff, spinBackoff), spinBackoffMax)
	p.until = now + p.backoff
}

// stopSpinning uncounts a spinning waiter.
func (s *IdleTime) stopSpinning() {
	if s.spinning {
		s.spinning = false
		waiting.spinning.Add(-1)
	}
}

// waiting counts the waiters of the process. If all Ps of the runtime spin, none of them runs the
// network poller, which wakes parked goroutines. So while goroutines are parked, at least one P
// must not spin.
var waiting waiters

type waiters struct{ spinning, parked atomic.Int32 }

// admit counts one more spinning waiter; false if it must not spin.
func (c *waiters) admit() bool {
	n := c.spinning.Add(1)
	if c.parked.Load() == 0 || int(n) < runtime.GOMAXPROCS(0) {
		return true
	}
	c.spinning.Add(-1)
	return false
}

var clockStart = time.Now()

// clock returns the monotonic time since the start of the process; never 0.
func clock() time.Duration { return time.Since(clockStart) + 1 }

// yieldCPU yields the CPU to other threads that wait for it.
func yieldCPU() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) } // never fails
