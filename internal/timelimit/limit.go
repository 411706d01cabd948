// Package timelimit limits waits by the time in which the process runs. While a process is throttled,
// stopped or suspended, it receives nothing. Its peer is usually stopped too: another process of the same
// container, or a goroutine of the same process. A limit by the clock alone would have passed when the
// process continues.
package timelimit

import "time"

// Limit is the maximum time of a wait. The waiting goroutine checks it repeatedly, by Over or Count. Of the
// time between two checks at most a maximum counts. So however long the process was stopped, several checks
// pass before the limit is reached. A goroutine that checks its condition before each check of the limit
// therefore sees everything that arrived while the process was stopped.
//
// A check reads the monotonic clock (20 to 40 ns where that takes no system call): do not check on the
// data path. It does not allocate. A Limit belongs to one goroutine, and may be copied. The zero
// value is no wait.
type Limit struct {
	remaining time.Duration
	most      time.Duration // maximum that counts of the time between two checks; 0: there is no wait
	last      time.Duration // time of the last check
}

// Looks is the minimum number of checks before a limit of New is reached.
const Looks = 10

// New starts a wait of at most d, which is positive. Each check counts at most d/Looks. Use it if the time
// between two checks is unknown. The limit is exact if the caller checks at least Looks times within d.
func New(d time.Duration) Limit { return At(Now(), d, d/Looks) }

// WithMost starts a wait of at most d, which is positive. Each check counts at most most, which should be
// several times the interval of the checks while the process runs. With a smaller value shorter stops of the
// process do not count.
func WithMost(d, most time.Duration) Limit { return At(Now(), d, most) }

// At starts a wait at a time that Now has returned, or at a time of the clock whose times Count gets.
func At(now, d, most time.Duration) Limit { return Limit{remaining: d, most: max(most, 1), last: now} }

// Waits reports whether there is a wait. It is not a check.
func (l *Limit) Waits() bool { return l.most != 0 }

// Over checks the limit: it reports whether the wait has reached it.
func (l *Limit) Over() bool { return l.Count(Now(), l.most) }

// Count is Over with the current time of the caller's clock, which must not go back, and with another
// maximum, which is positive.
func (l *Limit) Count(now, most time.Duration) bool {
	l.remaining -= min(now-l.last, most)
	l.last = now
	return l.remaining <= 0
}

var epoch = time.Now()

// Now returns the monotonic time since the start of the process.
func Now() time.Duration { return time.Since(epoch) }
