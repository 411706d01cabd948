package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A blocking call without work spins for a while before it parks: the reply
// of a running peer arrives sooner than a parked goroutine wakes up. With more waiters than
// CPUs spinning does harm: the waiter occupies the CPU that its peer needs. So each
// worker adapts its spin time to its waits, as hypervisors do when a virtual CPU
// halts. A short wait doubles the spin time of the next one, a
// long wait halves it. The duration of the wait counts, and not whether it ended
// while spinning, so a worker that parks at once still finds that spinning would have paid off.
// A spinning waiter also yields its CPU to other processes now and then: if one runs, the worker
// does not spin for a while.
const (
	// spinMost bounds the time of spinning before a sleep, at several times what a
	// sleep costs.
	spinMost = 100 * time.Microsecond
	// spinLeast is the smallest spin time; below it the worker does not spin.
	spinLeast = 5 * time.Microsecond
	// spinPays is the duration up to which a wait, including its sleep, counts as short.
	spinPays = 2 * spinMost
	// spinYield is the spin time between two yields of the CPU to other
	// processes, each of which costs some 300 ns if no process waits.
	spinYield = 5 * time.Microsecond
	// spinPreempted is the duration from which a round of polls counts as preempted: another thread had
	// the CPU, and would have had it at once from a waiter that parks.
	spinPreempted = 100 * time.Microsecond
	// spinRest and spinRestMost bound the time without spinning after a preemption. It doubles if
	// the next preemption follows soon.
	spinRest, spinRestMost = time.Millisecond, 256 * time.Millisecond
)

// Spinner decides how long the waiters of a worker spin. It belongs to the worker's
// owner.
type Spinner struct {
	Fixed  int           // polls, where configured; 0 adapts, negative spins without limit
	budget time.Duration // spin time of the next wait after its first round
	rest   time.Duration // time without spinning after the last preemption; 0 if there was none lately
	until  time.Duration // the end of rest
}

// IdleTime is the time since a waiter last found something to do. The zero value is its
// start.
type IdleTime struct {
	Polls    int
	since    time.Duration // when the first round of polls was over; 0 before that
	last     time.Duration // when the last round was over, while spinning
	yielded  time.Duration // when the CPU was last yielded
	spinning bool          // counted in waiting.spinning
}

// Again reports whether the waiter should poll again after a round without an event.
func (p *Spinner) Again(s *IdleTime) bool {
	if p.Fixed > 0 {
		return s.Polls < p.Fixed
	}
	now := clock()
	if p.Fixed < 0 {
		s.offer(now)
		return true
	}
	if s.since == 0 {
		s.since, s.last, s.yielded = now, now, now
		s.spinning = p.budget > 0 && (p.rest == 0 || now >= p.until) && waiting.admit()
	}
	if s.spinning && (p.preempted(s, now) || now-s.since >= p.budget) {
		s.park()
	}
	if s.spinning {
		s.offer(now)
	}
	return s.spinning
}

// offer yields the CPU to other processes every spinYield.
func (s *IdleTime) offer(now time.Duration) {
	if now-s.yielded >= spinYield {
		s.yielded = now
		yieldProcessor()
	}
}

// Found ends the idle time after an event.
func (p *Spinner) Found(s *IdleTime) {
	if s.since != 0 {
		now := clock()
		if !s.spinning || !p.preempted(s, now) {
			p.adapt(now - s.since)
		}
		s.park()
	}
	*s = IdleTime{}
}

// End ends the idle time with the wait; over: the wait has succeeded, otherwise it was given up.
func (p *Spinner) End(s *IdleTime, over bool) {
	if over {
		p.Found(s)
	}
	s.park()
}

// adapt adapts the spin time to the duration of a wait.
func (p *Spinner) adapt(took time.Duration) {
	switch {
	case took <= spinPays:
		p.budget = min(max(2*p.budget, spinLeast), spinMost)
	case p.budget > spinLeast:
		p.budget /= 2
	default:
		p.budget = 0
	}
}

// preempted records the time of a round, and reports whether the thread was preempted in
// it. The worker then does not spin for a while.
func (p *Spinner) preempted(s *IdleTime, now time.Duration) bool {
	took := now - s.last
	s.last = now
	if took < spinPreempted {
		return false
	}
	if now-p.until > 16*p.rest {
		p.rest = 0
	}
	p.rest = min(max(2*p.rest, spinRest), spinRestMost)
	p.until = now + p.rest
	return true
}

// park ends spinning.
func (s *IdleTime) park() {
	if s.spinning {
		s.spinning = false
		waiting.spinning.Add(-1)
	}
}

// waiting counts the waiters of the process. While all Ps of the runtime spin, none of them runs the
// network poller, which wakes parked goroutines. So when goroutines are parked, one P
// must not spin.
var waiting waiters

type waiters struct{ spinning, parked atomic.Int32 }

// admit lets one more waiter spin, if there is a P for it.
func (c *waiters) admit() bool {
	n := c.spinning.Add(1)
	if c.parked.Load() == 0 || int(n) < runtime.GOMAXPROCS(0) {
		return true
	}
	c.spinning.Add(-1)
	return false
}

var clockStart = time.Now()

// clock is the monotonic clock, from some start; never 0.
func clock() time.Duration { return time.Since(clockStart) + 1 }

// yieldProcessor lets other threads run that wait for this CPU.
func yieldProcessor() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) } // never fails
