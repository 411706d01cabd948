package softhca

import (
	"errors"
	"os"
	"time"
)

// The engine is the goroutine that drives the device when no caller polls.
//
//	parked   sleeping is odd: who raises attention writes the pipe
//	called   sleeping is even: the pipe was written; it runs when it gets a processor
//	watching sleeping is even: somebody polls; look again every tick
//
// It tells one from the other by the probe bit, which it raises and who drives
// the device clears.
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

// firstTick is the first look after somebody was seen to poll: a caller that
// looked once and went away must not hold up arrivals for a whole tick.
const firstTick = 50 * time.Microsecond

// watch stays away as long as somebody polls, and looks in less and less often. It
// ends at once when somebody announces that the polling ends.
func (h *hca) watch() {
	for tick := firstTick; !h.pollerLeft.Swap(false) && h.polled() && !h.closing.Load(); tick = min(2*tick, h.cfg.EngineTick) {
		h.ctl.attention.Or(attnProbe)
		h.wait(min(tick, h.cfg.EngineTick))
	}
}

// pollerLeaving has the engine take over from a caller that is about to sleep: it has
// armed a CQ. Otherwise the engine would take its last looks for those of somebody
// who polls, and what arrives next would lie until the tick is over: 1 ms at least,
// as the runtime rounds up shorter sleeps of an idle process.
func (h *hca) pollerLeaving() {
	h.pollerLeft.Store(true)
	if !isAsleep(h.ctl.sleeping.Load()) {
		wake(h.wakeFD)
	}
}

// polled reports whether somebody else has driven the device since the probe bit
// was raised.
func (h *hca) polled() bool { return h.ctl.attention.Load()&attnProbe == 0 }

// park sleeps until a peer or a thread of this process calls, or a timer is due. It
// leaves the timers alone: what a timer sets going is for Drive to run.
func (h *hca) park() {
	h.ctl.attention.Or(attnProbe)
	h.sleepSeq += 2
	h.ctl.sleeping.Store(h.sleepSeq - 1)
	// Pairs with call: either it sees the nap, or this sees its bits.
	if h.ctl.attention.Load()&attnWork == 0 && !h.closing.Load() {
		h.wait(h.untilTimer())
	}
	h.ctl.sleeping.Store(h.sleepSeq)
}

// isNap reports whether a value of the sleeping word says that the engine sleeps and has not been
// called. Each sleep has an odd value of its own.
func isAsleep(sleeping uint32) bool { return sleeping&1 != 0 }

// wakeOnce wakes the engine out of a nap. Others need not write the pipe then: a woken engine may
// get a processor a thousand messages later. The word says so after the write, as who calls may be
// killed in between, and only if it is still the same nap.
func wakeOnce(ctl *control, wakeFD int, seq uint32) {
	wake(wakeFD)
	ctl.sleeping.CompareAndSwap(seq, seq+1)
}

// untilTimer is how long the engine may sleep; 0 means forever.
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
