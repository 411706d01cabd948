package engine

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A blocking call that finds nothing to do spins for a while before it parks: the answer
// of a peer that runs comes sooner than a parked goroutine is woken. With more waiters than
// processors spinning does harm: the waiter has the processor that its peer needs. So each
// worker learns from its waits how long to spin, as hosts of virtual machines do when a
// processor of a guest halts. A short wait doubles the time that the next one may spin, a
// long wait halves it. What counts is how long the whole wait took, and not whether it ended
// while spinning, so a worker that parks at once still sees that spinning would have paid.
// And a spinning waiter offers its processor to other processes: if one takes it, the worker
// does not spin for a while.
const (
	// spinMost bounds the time of spinning before a sleep, at several times what a
	// sleep costs.
	spinMost = 100 * time.Microsecond
	// spinLeast is where growth starts, and spinning for less is none.
	spinLeast = 5 * time.Microsecond
	// spinPays is how long a wait may take, with the sleep, to count as short.
	spinPays = 2 * spinMost
	// spinYield is how long a waiter spins before it offers the processor to other
	// processes, which costs some 300 ns if there are none.
	spinYield = 5 * time.Microsecond
	// spinPreempted is how long a round of polls takes only if somebody else had the
	// processor meanwhile, who would have had it at once from a waiter that parks.
	spinPreempted = 100 * time.Microsecond
	// spinRest and spinRestMost bound how long nobody spins after that. It doubles while
	// it happens again soon.
	spinRest, spinRestMost = time.Millisecond, 256 * time.Millisecond
)

// Spinner decides how long the waiters of a worker spin. It belongs to the worker's
// owner.
type Spinner struct {
	Fixed  int           // polls, where configured; 0 adapts, negative spins for ever
	budget time.Duration // how long the next wait may spin after its first round
	rest   time.Duration // how long it does not spin after its processor was taken; 0 if it was not lately
	until  time.Duration // the end of that
}

// IdleTime is the time since a waiter last found something to do. The zero value is its
// start.
type IdleTime struct {
	Polls    int
	since    time.Duration // when the first round of polls was over; 0 before that
	last     time.Duration // when the last round was over, while spinning
	yielded  time.Duration // when the processor was last offered to others
	spinning bool          // counted in waiting.spinning
}

// Again reports whether the waiter goes on polling after another round in vain.
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

// offer offers the processor to other processes now and then.
func (s *IdleTime) offer(now time.Duration) {
	if now-s.yielded >= spinYield {
		s.yielded = now
		yieldProcessor()
	}
}

// Found ends the idle time: there was something to do.
func (p *Spinner) Found(s *IdleTime) {
	if s.since != 0 {
		now := clock()
		if !s.spinning || !p.preempted(s, now) {
			p.learn(now - s.since)
		}
		s.park()
	}
	*s = IdleTime{}
}

// End ends the idle time with the wait, which is over or was given up.
func (p *Spinner) End(s *IdleTime, over bool) {
	if over {
		p.Found(s)
	}
	s.park()
}

// learn adapts to how long a wait took.
func (p *Spinner) learn(took time.Duration) {
	switch {
	case took <= spinPays:
		p.budget = min(max(2*p.budget, spinLeast), spinMost)
	case p.budget > spinLeast:
		p.budget /= 2
	default:
		p.budget = 0
	}
}

// preempted notes the time of a round, and reports whether the processor was taken away in
// it. Then the worker does not spin for a while.
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

// waiting counts the waiters of the process. As long as all processors spin, nobody looks
// whether parked goroutines can go on (the runtime's poller is asked by a processor that
// has nothing to run), so one of them does not when some are parked.
var waiting waiters

type waiters struct{ spinning, parked atomic.Int32 }

// admit lets one more waiter spin, if there is a processor for it.
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

// yieldProcessor lets other threads of the machine run that wait for this processor.
func yieldProcessor() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) } // never fails
