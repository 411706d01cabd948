package sm

import (
	"sync"
	"time"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/uct"
)

// exchange delays the first look for the next message while messages come alone, as in a
// ping-pong. A look copies the cache line of the next message, which the peer must get back
// before it can write: one hand-over more for each message. The delay is a number of PAUSE
// instructions. It grows by one as long as the first look finds nothing. It has a bound, as two
// sides that both delay wait for each other.
type exchange struct {
	idle   int // polls in which nothing happened, since a message came alone; or inProgress
	found  int // how many these were at the latest poll
	pauses int // PAUSEs before the first look
	most   int // of these
	hits   int // first looks that found one, since pauses was changed for that
}

const (
	// idlePolls is after how many polls in which nothing happened Progress pauses in each:
	// some 500 ns, which is several ping-pongs of short messages between near processors.
	idlePolls = 32
	// soonPolls is up to how many such polls messages follow each other between near
	// processors: some 200 ns. Where they take longer, delaying the look gains nothing.
	soonPolls = 16
	// inProgress is idle while Progress runs.
	inProgress = -1
	// notSoon is what counts after messages that came together.
	notSoon = idlePolls
	// enoughHits is after how many first looks that find a message the delay is shortened.
	// With more, both sides wait ever longer for each other.
	enoughHits = 2
	// mostPauses and mostDelay bound by how much a first look is put off: about the time that a
	// line takes between near processors. More was slower (experiment 0060 in docs/perf).
	mostPauses = 4
	mostDelay  = 80 * time.Nanosecond
)

// wait delays the first look after a message that came alone. How many looks the message before
// took decides whether the delay grows or shrinks. It panics if Progress runs already.
//
//go:noinline
func (x *exchange) wait() {
	if x.idle == inProgress {
		panic(uct.TwoAtOnce)
	}
	switch {
	case x.found > soonPolls:
		x.pauses = 0
	case x.found > 0:
		x.pauses, x.hits = min(x.pauses+1, x.most), 0
	default:
		if x.hits++; x.hits >= enoughHits && x.pauses > 0 {
			x.pauses, x.hits = x.pauses-1, 0
		}
	}
	for range x.pauses {
		mmio.Pause()
	}
}

// pauseBound is the bound in PAUSEs, which take 12 to 60 ns each. They are measured once in a
// process.
var pauseBound = sync.OnceValue(func() int {
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
