// Package timelimit bounds waits by the time in which the process runs. A process that stands
// still, as it is throttled, stopped or suspended, has not been told meanwhile what it waits for, and
// mostly who it waits for stood still with it: a peer in the same container, a goroutine of the same
// process. By the clock alone its limits would be over when it goes on.
package timelimit

import "time"

// Limit is a time that a wait may take. Who waits looks now and then: of the time between two looks
// no more counts than a bound, so that a wait is looked at several times before it is over, however
// long the process stood. Who looks for what it waits for before it looks at the limit has then seen
// what came meanwhile.
//
// A look reads the monotonic clock (20 to 40 ns where that takes no system call): take none on the
// data path. It does not allocate. A Limit belongs to one goroutine, and may be copied. The zero
// value is no wait.
type Limit struct {
	remaining time.Duration
	most      time.Duration // that counts of the time between two looks; 0: there is no wait
	last      time.Duration // of the last look
}

// Looks is how many looks a wait of New takes at least.
const Looks = 10

// New begins a wait for d, which is positive, now. A look counts d/Looks at most: for waits of which
// it is not known how often they are looked at. One that is to take its time, and no longer, is looked
// at Looks times in it, or more often.
func New(d time.Duration) Limit { return At(Now(), d, d/Looks) }

// WithMost begins a wait for d, which is positive, now. A look counts most at most, which is several
// times what passes between two looks of a process that runs: the less, the shorter the stands that
// do not count.
func WithMost(d, most time.Duration) Limit { return At(Now(), d, most) }

// At begins a wait at a time of Now, or of the clock that Count will be told.
func At(now, d, most time.Duration) Limit { return Limit{remaining: d, most: max(most, 1), last: now} }

// Waits reports that there is a wait. It does not look.
func (l *Limit) Waits() bool { return l.most != 0 }

// Over looks, and reports whether the wait is over.
func (l *Limit) Over() bool { return l.Count(Now(), l.most) }

// Count is Over for who has a clock of its own, which does not go back, and for looks that count
// another time at most, which is positive.
func (l *Limit) Count(now, most time.Duration) bool {
	l.remaining -= min(now-l.last, most)
	l.last = now
	return l.remaining <= 0
}

var epoch = time.Now()

// Now is the time of the process, since it began, by the monotonic clock.
func Now() time.Duration { return time.Since(epoch) }
