package ucp

import "time"

// A vacancy is the time in which no goroutine of a SharedWorker makes progress although some are blocked. It begins when the
// driver, the goroutine that made progress, returns to its caller with a message, or resigns because it has woken another
// goroutine with one. A service reads a request, replies and reads again, so that goroutine calls again within microseconds and
// becomes the driver. In this way no message needs a switch between goroutines. If the goroutine does not call again, a timer
// ends the vacancy, and another goroutine becomes the driver.
//
// To set a timer costs as much as to wake a goroutine, since the runtime wakes a thread for it. So the timer is not stopped at
// the end of a vacancy. When it fires, it is set again if another vacancy has begun meanwhile.
//
// A goroutine that passes messages to others, as in a server of gRPC, would poll and arm the transports as the driver before those
// others run. So goroutines that read streams must also reply (see replies). After a sleep of the driver there is a further condition:
// the timer is set already, or messages are frequent.
type vacancy struct {
	open    bool      // there is a vacancy now
	quick   bool      // the driver has not slept before its latest event
	last    time.Time // time of the latest message after a sleep while the timer was not set
	replies replies
	begun   uint        // number of vacancies so far
	timer   *time.Timer // nil before the first vacancy

	// The timer.
	set   bool          // endVacancy will be called
	limit time.Duration // time until that, from when the timer was set
	seen  uint          // value of begun when it was set

	// After a vacancy that the timer has ended, the next messages begin none.
	skip    uint // number of these messages
	skipped uint // value of skip after the latest such vacancy; 0 before the first one, skipMin if one ended well since
}

// Limits of the time after which the timer fires. The first is a few times the 20 to 50 us that a wake-up takes. The last limits
// the cost: fewer than 3,000 calls a second. A vacancy ends after at most 2 * vacancyMax.
const vacancyMin, vacancyMax = 100 * time.Microsecond, 400 * time.Microsecond

// Limits of vacancy.skip. A vacancy that the timer ends takes as long as some switches between goroutines, so the last makes these
// rare.
const skipMin, skipMax = 4, 1024

// beginVacancy begins a vacancy. The caller holds mu, and does not make progress any more.
func (s *SharedWorker) beginVacancy() {
	v := &s.vacancy
	v.open = true
	v.begun++
	switch {
	case v.set:
	case v.quick:
		s.setTimer(vacancyMin)
	default:
		s.setTimer(vacancyMax) // longer than the time between two messages
	}
}

// replies detects whether goroutines that read streams also write to them, one by one: no goroutine reads the stream of an EP
// meanwhile. In gRPC one goroutine reads always and another one writes.
type replies struct {
	unread int // sends that no wait for bytes has followed, replyMemory at most
	row    int // number of successive waits that have each followed such a send, repliesSeen at most
}

// Values of replies.row. Before the first wait it is repliesAssumed, which permits vacancies while the driver does not sleep.
const (
	repliesAssumed = 8 // experiment 0153 in docs/perf
	repliesSeen    = repliesAssumed + 1
)

// replyMemory limits replies.unread: a service that writes twice for each message may change its behavior.
const replyMemory = 64

// sent is called when bytes were sent on a stream; read means that a goroutine waits for bytes of the stream.
func (r *replies) sent(read bool) {
	if read {
		*r = replies{}
		return
	}
	r.unread = min(r.unread+1, replyMemory)
}

// wait is called when StreamRecv begins to wait.
func (r *replies) wait() {
	if r.unread == 0 {
		r.row = 0
		return
	}
	r.unread--
	r.row = min(r.row+1, repliesSeen)
}

// fill ends a vacancy because a goroutine becomes the driver.
func (v *vacancy) fill() {
	if v.open {
		v.open, v.skipped = false, skipMin
	}
	v.quick = false
}

// mayBegin reports whether a vacancy may begin at a message.
func (v *vacancy) mayBegin() bool {
	switch {
	case v.replies.row < repliesAssumed:
		return false
	case !v.quick && (v.replies.row < repliesSeen || !v.set && !v.frequent(time.Now())):
		return false
	case v.skip > 0:
		v.skip--
		return false
	}
	return true
}

// frequent reports whether the message at now comes soon after the previous one.
func (v *vacancy) frequent(now time.Time) bool {
	last := v.last
	v.last = now
	return now.Sub(last) <= vacancyMax
}

// setTimer sets the timer. The caller holds mu.
func (s *SharedWorker) setTimer(limit time.Duration) {
	v := &s.vacancy
	v.set, v.limit, v.seen = true, limit, v.begun
	if v.timer == nil {
		v.timer = time.AfterFunc(limit, s.endVacancy)
		return
	}
	v.timer.Reset(limit)
}

// endVacancy is called by the timer. It ends a vacancy that had begun before the timer was set, and wakes a blocked goroutine,
// which becomes the driver. If no goroutine is blocked, it does not use the worker, which may be closed.
func (s *SharedWorker) endVacancy() {
	s.acquire()
	defer s.mu.Unlock()
	v := &s.vacancy
	v.set = false
	switch {
	case v.begun != v.seen:
		s.setTimer(min(2*v.limit, vacancyMax))
	case v.open:
		v.open = false
		v.skipped = min(max(2*v.skipped, skipMin), skipMax)
		v.skip = v.skipped
		s.wakeWaiters()
	}
}
