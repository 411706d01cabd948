package rccore

import "time"

// Limit bounds a wait that Progress looks at now and then. Of the time between two looks no more
// counts than a tenth of the whole: a process that stood has not been told what has come meanwhile,
// and takes that in first. The zero value is no wait.
type Limit struct {
	left time.Duration
	look time.Duration // how much counts of the time between two looks; 0: there is no wait
	last time.Duration // of the last look, since limitEpoch
}

const limitLooks = 10

var limitEpoch = time.Now()

// NewLimit begins a wait for d, which is positive.
func NewLimit(d time.Duration) Limit {
	return Limit{left: d, look: max(d/limitLooks, 1), last: time.Since(limitEpoch)}
}

// Waits reports that there is a wait.
func (l *Limit) Waits() bool { return l.look != 0 }

// Over looks, and reports whether the wait is over.
func (l *Limit) Over() bool {
	now := time.Since(limitEpoch)
	l.left -= min(now-l.last, l.look)
	l.last = now
	return l.left <= 0
}
