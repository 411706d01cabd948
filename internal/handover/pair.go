package handover

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/internal/cma"
)

// Lengths of measurements in bytes, and their numbers. Transfers of two lengths, few and block, give both the cost of a
// call and the cost per byte. The passed bytes fill the ring several times, so that segments are in the reader's cache when
// they are written again, as in a connection that is in use.
const (
	block   = 64 << 10
	few     = 4 << 10
	segment = 8 << 10
	ring    = 4 * segment
	passed  = 128 << 10
	runs    = 5 // maximum number of runs; the least time of each measurement counts
	copies  = 2 // copies in a run of data that the other CPU has written
	bounces = 32
)

// job is a task of the other goroutine.
type job uint32

const (
	write job = iota // write src
	feed             // copy passed bytes into the ring
	echo             // return numbers
	leave            // return from serve
)

// shared is a word that both CPUs poll. No other data is in its pair of cache lines, which a CPU may fetch together.
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

	ordered, done shared // number of the last job that was ordered, with the job in the lowest jobBits; number of the last one done
	fed, taken    shared // number of segments of a feed that were written, and that were read
}

// jobBits is the number of bits of the job in pair.ordered.
const jobBits = 8

// least has the shortest time of each measurement; 0: there is none.
type least struct{ read, pass, few, block, echo time.Duration }

// measure does up to runs runs within the limit.
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
	for _, b := range [][]byte{p.src, p.dst, p.own, p.ring} { // so that every page exists
		for i := 0; i < len(b); i += few {
			b[i] = 1
		}
	}
	go p.serve()
	return p
}

// run measures everything once. It returns false if the limit was reached. It copies data that the other CPU has written
// twice: see Costs.
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

// time measures f, and stores the duration in at if f returns true and the duration is the shortest so far.
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

// order orders a job from the other goroutine, and returns its number.
func (p *pair) order(j job) uint64 {
	n := p.ordered.v.Load()>>jobBits + 1
	p.ordered.v.Store(n<<jobBits | uint64(j))
	return n
}

// do orders a job and waits until it is done; false if the limit was reached.
func (p *pair) do(j job) bool {
	n := p.order(j)
	return p.until(func() bool { return p.done.v.Load() == n })
}

// until polls done; false if the limit was reached. It does not yield: otherwise the other goroutine
// might run on this CPU, and no byte would pass between CPUs.
func (p *pair) until(done func() bool) bool {
	const perLook = 64 // polls for each reading of the clock
	for n := 0; n%perLook != 0 || !p.now().After(p.deadline); n++ {
		if done() {
			return true
		}
	}
	return false
}

// bounce sends a number to the other goroutine and waits until it is returned, bounces times.
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

// part returns segment k of a ring, modulo its length.
func part(b []byte, k uint64) []byte {
	at := int(k) * segment % len(b)
	return b[at : at+segment]
}

// serve is the other goroutine. It does the latest ordered job, and abandons a job when another one is
// ordered. The caller of Measure does not wait until serve has returned, because on a busy machine it may not have
// started yet.
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

// perYield is the number of polls between two yields of feed and echo: a garbage collection may wait for
// this goroutine, and the measuring goroutine for the garbage collection.
const perYield = 1 << 10

// echo returns numbers, until another job is ordered.
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

// costs returns the costs by the measured times; assumed costs if a time is missing that every machine can measure.
func (l least) costs() Costs {
	if l.read == 0 || l.pass == 0 || l.echo == 0 {
		return assumed()
	}
	c := Costs{Read: bulk.Rate(block, l.read), Pass: bulk.Rate(passed, l.pass), Line: max(l.echo/(2*bounces), 1), Measured: true}
	if l.few == 0 { // the kernel forbids it
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
