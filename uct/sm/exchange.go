package sm

import (
	"sync"
	"time"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/uct"
)

// exchange is what an iface knows of messages that come alone, as in a ping-pong. A receiver that looks
// for the next one at once has a copy of its line, which the peer must have back before it can
// write: a hand-over more for each message. So while one message follows the other, the first look
// after each is put off by some PAUSEs, a few until that finds the next one. Two sides that
// both do so wait for each other, which is why there is a bound.
type exchange struct {
	idle  int // polls in which nothing happened, since a message came alone; or inProgress
	found int // how many these were at the latest poll
	lull  int // PAUSEs before the first look
	most  int // of these
	hits  int // first looks that found one, since lull was changed for that
}

const (
	// hastyPolls is after how many polls in which nothing happened Progress is in no hurry
	// any more: some 500 ns, which is several ping-pongs of short messages between near
	// processors.
	hastyPolls = 32
	// soonPolls is up to how many of them messages follow each other between near processors:
	// some 200 ns. Where they take longer putting looks off gains nothing.
	soonPolls = 16
	// inProgress is idle while Progress runs.
	inProgress = -1
	// notSoon is what counts after messages that came together.
	notSoon = hastyPolls
	// enoughHits is after how many first looks that find a message one comes earlier. With
	// more, both sides wait ever longer for each other.
	enoughHits = 2
	// mostPauses and mostDelay bound by how much a first look is put off: about the time that a
	// line takes between near processors. More was slower (docs/perf.md, "The first look").
	mostPauses = 4
	mostDelay  = 80 * time.Nanosecond
)

// wait puts the first look off after a message that came alone, and learns from how many looks
// the one before took. It panics if Progress runs already.
//
//go:noinline
func (x *exchange) wait() {
	if x.idle == inProgress {
		panic(uct.TwoAtOnce)
	}
	switch {
	case x.found > soonPolls:
		x.lull = 0
	case x.found > 0:
		x.lull, x.hits = min(x.lull+1, x.most), 0
	default:
		if x.hits++; x.hits >= enoughHits && x.lull > 0 {
			x.lull, x.hits = x.lull-1, 0
		}
	}
	for range x.lull {
		mmio.Pause()
	}
}

// mostLull is the bound in PAUSEs, which take 12 to 60 ns each. They are measured once in a
// process.
var mostLull = sync.OnceValue(func() int {
	const count, tries = 256, 5
	least := time.Hour
	for range tries {
		begin := time.Now()
		for range count {
			mmio.Pause()
		}
		least = min(least, time.Since(begin))
	}
	return int(min(mostPauses, mostDelay*count/max(least, 1)))
})
