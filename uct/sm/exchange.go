package sm

import (
	"sync"
	"time"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/uct"
)

// exchange delays the first poll for the next message while messages arrive one by one, as in a
// ping-pong. A poll copies the cache line of the next message; the peer must get the line back
// before it can write, which costs one more transfer for each message. The delay is a number of PAUSE
// instructions. It grows by one as long as the first poll finds nothing. It is limited, because otherwise two
// sides that both delay would wait for each other.
type exchange struct {
	idle      int // number of polls without an event since a single message; or inProgress
	found     int // idle at the latest poll
	pauses    int // PAUSEs before the first poll
	maxPauses int // limit of pauses
	hits      int // number of first polls that found a message, since the latest change of pauses
}

const (
	// idlePolls is the number of polls without an event after which Progress pauses in each poll:
	// about 500 ns, which is several ping-pongs of small messages between near CPUs.
	idlePolls = 32
	// soonPolls is the maximum number of such polls between messages of near
	// CPUs: about 200 ns. If messages take longer, a delay has no advantage.
	soonPolls = 16
	// inProgress is the value of idle while Progress runs.
	inProgress = -1
	// notSoon is the value of idle after several messages in one poll.
	notSoon = idlePolls
	// minHits is the number of first polls with a message after which the delay is reduced.
	// With a larger number, both sides would delay more and more.
	minHits = 2
	// maxPauses and maxDelay limit the delay: about the time to transfer a
	// cache line between near CPUs. Longer delays were slower (experiment 0060 in docs/perf).
	maxPauses = 4
	maxDelay  = 80 * time.Nanosecond
)

// wait delays the first poll after a single message. The number of polls before the previous message
// determines whether the delay grows or shrinks. It panics if Progress runs already.
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
		x.pauses, x.hits = min(x.pauses+1, x.maxPauses), 0
	default:
		if x.hits++; x.hits >= minHits && x.pauses > 0 {
			x.pauses, x.hits = x.pauses-1, 0
		}
	}
	for range x.pauses {
		mmio.Pause()
	}
}

// pauseBound returns the limit of pauses. A PAUSE takes 12 to 60 ns; it is measured once in a
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
	return int(min(maxPauses, maxDelay*count/max(least, 1)))
})
