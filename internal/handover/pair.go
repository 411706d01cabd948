package handover

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/internal/cma"
)

// What is measured, in bytes. Transfers of two lengths tell the call from the bytes. What is passed
// fills the ring several times, so that the writer finds segments that are in the reader's cache,
// as in a connection that is in use.
const (
	block   = 64 << 10
	few     = 4 << 10
	segment = 8 << 10
	ring    = 4 * segment
	passed  = 128 << 10
	runs    = 5 // at most: the least time of each measurement counts
	copies  = 2 // of what the other CPU has written, in a run
	bounces = 32
)

// job is what the other processor does.
type job uint32

const (
	write job = iota // src
	feed             // passed bytes into the ring
	echo             // bounces
	leave            // for good
)

// shared is a word that both processors poll, alone in the lines that they fetch together.
type shared struct {
	_ [128]byte
	v atomic.Uint64
	_ [128]byte
}

// pair is the caller's goroutine, which measures, and another one, which does jobs.
type pair struct {
	now      func() time.Time
	deadline time.Time

	src, dst, own, ring []byte

	ordered, done shared // jobs, counted; the number is above the job
	fed, taken    shared // segments of a feed
}

// jobBits are those of a job in pair.ordered.
const jobBits = 8

// least are the shortest times of each measurement; 0: there is none.
type least struct{ read, pass, few, block, echo time.Duration }

// measure does as many runs as there is time for.
func measure(now func() time.Time, limit time.Duration) Costs {
	if runtime.GOMAXPROCS(0) < 2 || runtime.NumCPU() < 2 {
		return assumed()
	}
	p := newPair(now, limit)
	defer p.order(leave)
	var l least
	for range runs {
		if !p.run(&l) {
			break
		}
	}
	return l.costs()
}

func newPair(now func() time.Time, limit time.Duration) *pair {
	p := &pair{now: now, deadline: now().Add(limit),
		src: make([]byte, block), dst: make([]byte, block), own: make([]byte, block), ring: make([]byte, ring)}
	for _, b := range [][]byte{p.src, p.dst, p.own, p.ring} { // every page is there
		for i := 0; i < len(b); i += few {
			b[i] = 1
		}
	}
	go p.serve()
	return p
}

// run measures everything once. It reports false when the time is over. What another CPU has written
// is copied again after the first copy: see Costs.
func (p *pair) run(l *least) bool {
	if !p.do(write) {
		return false
	}
	for range copies {
		p.time(&l.read, func() bool { bulk.Copy(p.dst, p.src); return true })
		for _, x := range []struct {
			n  int
			at *time.Duration
		}{{few, &l.few}, {block, &l.block}} {
			p.time(x.at, func() bool { return cma.ReadSelf(p.dst[:x.n], p.src) == nil })
		}
	}
	return p.time(&l.echo, p.bounce) && p.time(&l.pass, p.drain)
}

// time keeps the time of f if that reports true and it is the shortest so far.
func (p *pair) time(at *time.Duration, f func() bool) bool {
	start := p.now()
	if !f() {
		return false
	}
	if took := p.now().Sub(start); *at == 0 || took < *at {
		*at = max(took, 1)
	}
	return true
}

// order gives the other goroutine a job.
func (p *pair) order(j job) uint64 {
	n := p.ordered.v.Load()>>jobBits + 1
	p.ordered.v.Store(n<<jobBits | uint64(j))
	return n
}

// do has the other goroutine do a job, and reports false when the time is over.
func (p *pair) do(j job) bool {
	n := p.order(j)
	return p.until(func() bool { return p.done.v.Load() == n })
}

// until polls, and reports false when the time is over. It does not yield: the other goroutine
// would run on this processor, which hands nothing over to itself.
func (p *pair) until(done func() bool) bool {
	const perLook = 64 // polls for a look at the clock
	for n := 0; n%perLook != 0 || !p.now().After(p.deadline); n++ {
		if done() {
			return true
		}
	}
	return false
}

// bounce sends a number to the other goroutine and waits until it has come back, bounces times.
func (p *pair) bounce() bool {
	p.fed.v.Store(0)
	p.taken.v.Store(0)
	n := p.order(echo)
	for k := range uint64(bounces) {
		p.fed.v.Store(k + 1)
		if !p.until(func() bool { return p.taken.v.Load() > k }) {
			return false
		}
	}
	return p.until(func() bool { return p.done.v.Load() == n })
}

// drain copies passed bytes out of the ring that the other goroutine feeds.
func (p *pair) drain() bool {
	p.fed.v.Store(0)
	p.taken.v.Store(0)
	n := p.order(feed)
	for k := range uint64(passed / segment) {
		if !p.until(func() bool { return p.fed.v.Load() > k }) {
			return false
		}
		bulk.Copy(part(p.dst, k), part(p.ring, k))
		p.taken.v.Store(k + 1)
	}
	return p.until(func() bool { return p.done.v.Load() == n })
}

// part is the k-th segment, counted around.
func part(b []byte, k uint64) []byte {
	at := int(k) * segment % len(b)
	return b[at : at+segment]
}

// serve is the other goroutine. It does each job that it finds; one that was not done in time is
// given up with the next. Nobody waits until it has left: on a machine that is busy it may not have
// begun.
func (p *pair) serve() {
	for last := uint64(0); ; runtime.Gosched() {
		o := p.ordered.v.Load()
		if o == last {
			continue
		}
		last = o
		switch job(o & (1<<jobBits - 1)) {
		case write:
			bulk.Copy(p.src, p.own)
		case feed:
			p.feed(o)
		case echo:
			p.echo(o)
		case leave:
			return
		}
		p.done.v.Store(o >> jobBits)
	}
}

// perYield is how many polls go by between two yields of a feed: a garbage collection may wait for
// it, and the one who drains for the collection.
const perYield = 1 << 10

// echo sends numbers back, until another job is ordered.
func (p *pair) echo(o uint64) {
	for k := range uint64(bounces) {
		for n := 1; p.fed.v.Load() <= k; n++ {
			if p.ordered.v.Load() != o {
				return
			}
			if n%perYield == 0 {
				runtime.Gosched()
			}
		}
		p.taken.v.Store(k + 1)
	}
}

// feed copies passed bytes into the ring, until another job is ordered.
func (p *pair) feed(o uint64) {
	for k := range uint64(passed / segment) {
		for n := 1; k-p.taken.v.Load() >= ring/segment; n++ {
			if p.ordered.v.Load() != o {
				return
			}
			if n%perYield == 0 {
				runtime.Gosched()
			}
		}
		bulk.Copy(part(p.ring, k), part(p.own, k))
		p.fed.v.Store(k + 1)
	}
}

// costs are what the times come to; assumed ones if one is missing that there is on any machine.
func (l least) costs() Costs {
	if l.read == 0 || l.pass == 0 || l.echo == 0 {
		return assumed()
	}
	c := Costs{Read: bulk.Rate(block, l.read), Pass: bulk.Rate(passed, l.pass), Line: max(l.echo/(2*bounces), 1), Measured: true}
	if l.few == 0 { // the kernel does not do it
		return c
	}
	more := l.block - l.few
	if more <= 0 {
		return assumed()
	}
	c.Kernel = bulk.Rate(block-few, more)
	c.Call = max(l.few-more*few/(block-few), 1)
	return c
}
