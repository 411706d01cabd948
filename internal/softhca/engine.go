package softhca

import (
	"errors"
	"os"
	"time"
)

// The engine is the goroutine that drives the device when no caller polls.
//
//	parked   sleeping is odd: a thread that raises attention writes the pipe
//	woken    sleeping is even: the pipe was written; the engine runs when it gets a CPU
//	watching sleeping is even: a caller polls; the engine checks that every tick
//
// The probe bit shows whether a caller polls: the engine sets it, and a thread that drives
// the device clears it.
func (h *hca) engine() {
	defer close(h.engineDone)
	for !h.closing.Load() {
		h.Drive()
		if h.ctl.attention.Load()&attnWork != 0 {
			yield()
			continue
		}
		h.park()
		h.watch()
	}
}

// firstTick is the first interval after the engine has detected a poll: a caller that
// polls only once must not delay arrivals for a whole tick.
const firstTick = 50 * time.Microsecond

// watch returns when no caller polls. The intervals of its checks grow. It returns at once
// after pollerLeaving.
func (h *hca) watch() {
	for tick := firstTick; !h.pollerLeft.Swap(false) && h.polled() && !h.closing.Load(); tick = min(2*tick, h.cfg.EngineTick) {
		h.ctl.attention.Or(attnProbe)
		h.wait(min(tick, h.cfg.EngineTick))
	}
}

// pollerLeaving makes the engine drive the device again, as a caller has armed a CQ and is
// about to sleep. Otherwise the engine would take its last polls for those of a polling
// caller, and the next arrival would wait until the end of the tick: at least 1 ms, as the
// runtime rounds up shorter sleeps of an idle process.
func (h *hca) pollerLeaving() {
	h.pollerLeft.Store(true)
	if !isAsleep(h.ctl.sleeping.Load()) {
		wake(h.wakeFD)
	}
}

// polled reports whether another thread has driven the device since the probe bit was set.
func (h *hca) polled() bool { return h.ctl.attention.Load()&attnProbe == 0 }

// park sleeps until a peer or a thread of this process raises attention, or a timer expires.
// It does not fire the timers; Drive does.
func (h *hca) park() {
	h.ctl.attention.Or(attnProbe)
	h.sleepSeq += 2
	h.ctl.sleeping.Store(h.sleepSeq - 1)
	// Pairs with call: either call sees the sleep, or this load sees its bits.
	if h.ctl.attention.Load()&attnWork == 0 && !h.closing.Load() {
		h.wait(h.untilTimer())
	}
	h.ctl.sleeping.Store(h.sleepSeq)
}

// isAsleep reports whether a value of the sleeping word means that the engine sleeps and was not
// woken. Each sleep has another odd value.
func isAsleep(sleeping uint32) bool { return sleeping&1 != 0 }

// wakeOnce wakes the engine from the sleep seq, and then updates the word, so that other threads do
// not write the pipe for this sleep: a woken engine may get a CPU a thousand messages later. The
// write is first, as the calling process may be killed in between.
func wakeOnce(ctl *control, wakeFD int, seq uint32) {
	wake(wakeFD)
	ctl.sleeping.CompareAndSwap(seq, seq+1)
}

// untilTimer returns the time until the next timer; 0 means that there is none.
func (h *hca) untilTimer() time.Duration {
	next := h.nextTimer()
	if next == 0 {
		return 0
	}
	return max(time.Duration(next-nanotime()), time.Microsecond)
}

// wait sleeps until the pipe is readable, for at most d; 0 means forever.
func (h *hca) wait(d time.Duration) {
	var deadline time.Time
	if d > 0 {
		deadline = time.Now().Add(d)
	}
	if err := h.wakeFile.SetReadDeadline(deadline); err != nil {
		return // closed
	}
	var b [256]byte
	_, err := h.wakeFile.Read(b[:])
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		h.closing.Store(true)
	}
}
