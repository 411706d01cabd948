package ucp

import "time"

// A vacancy is the time in which no goroutine of a SharedWorker makes progress although some are blocked: the one that did,
// or that was woken last, runs the code of its caller. A service reads a request, replies and reads again, so it is back
// within microseconds, and makes progress then, without a switch between goroutines for each message. If it does not come
// back, a timer ends the vacancy, and another goroutine makes progress.
//
// To set a timer costs as much as to wake a goroutine, since the runtime wakes a thread for it. So the timer is not stopped
// when the goroutine comes back, and set again only if others have left in between; then it takes longer.
type vacancy struct {
	open  bool        // nobody makes progress, as a goroutine is expected back
	quick bool        // the last event came before the goroutine that made progress has slept
	begun uint        // number of vacancies so far
	timer *time.Timer // nil before the first vacancy

	// The timer.
	set   bool          // endVacancy will be called
	limit time.Duration // time from its setting to its end
	seen  uint          // begun when it was set
}

// Limits of the time until the timer looks. A wake-up takes 20 to 50 us, so the first is short beside those that a message
// takes anyway; the last makes less than 3,000 calls a second while goroutines come back all the time.
const vacancyMin, vacancyMax = 100 * time.Microsecond, 400 * time.Microsecond

// beginVacancy begins a vacancy. The caller holds mu, and does not make progress any more.
func (s *SharedWorker) beginVacancy() {
	v := &s.vacancy
	v.open = true
	v.begun++
	if !v.set {
		s.setTimer(vacancyMin)
	}
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

// endVacancy is called by the timer. It ends a vacancy that was there all the time: release then wakes a goroutine, which makes
// progress.
func (s *SharedWorker) endVacancy() {
	s.acquire()
	defer s.release()
	v := &s.vacancy
	v.set = false
	switch {
	case v.begun != v.seen:
		s.setTimer(min(2*v.limit, vacancyMax))
	case v.begun == v.seen:
		v.open = false
	}
}
