package stencil

import (
	"sync/atomic"

	"github.com/gucx/gucx/perftest/internal/studies/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Sides of a band, and of its QPs.
const (
	above = iota
	below
	sides
)

// phase is the next action of a thread.
type phase uint8

const (
	put          phase = iota // put both sides
	wait                      // wait for the puts
	report                    // report to neighbors in other processes
	awaitReports              // wait for the reports
	atBarrier
)

// neighbor is the thread with the same columns in the rank above or below.
type neighbor struct {
	track *steps.Track
	halo  [2]uint64 // addresses, by parity of the exchange
	rkey  uint32

	// Number of its completed exchanges: the counter in this process, or the word that it puts.
	sent *atomic.Uint64
	word uint64 // address of the same number of this thread, in another process; 0 in this one
}

// thread has columns [lo, hi) of a rank's band. It implements steps.Stepper.
type thread struct {
	grid   *[2]band
	lo, hi int
	points int // of a put
	inline bool

	poller  *steps.Poller
	beside  [sides]neighbor
	memory  memory
	barrier *barrier // of the rank
	sge     [1]verbs.SGE
	rows    [sides][]float64

	phase      phase
	side, at   int    // side and first point of the next put
	n, total   int    // iterations
	exchanges  uint64 // completed since the thread was created
	sent       atomic.Uint64
	generation int64 // of the barrier
	idle       bool
	puts       int64
}

// Idle implements steps.Stepper.
func (t *thread) Idle() bool { return t.idle }

// Step implements steps.Stepper: one call of post or of poll, or a check of the progress of other
// threads.
func (t *thread) Step() (more bool, err error) {
	t.idle = false
	switch t.phase {
	case put:
		return true, t.put()
	case report:
		return true, t.reportExchange()
	case wait, awaitReports:
		if t.outstanding() > 0 {
			return true, t.poll()
		}
		t.waited()
		return true, nil
	}
	if !t.exchangeComplete() {
		t.idle = true
		return true, nil
	}
	if t.n == t.total {
		return false, nil
	}
	t.iterate()
	return true, nil
}

func (t *thread) outstanding() int64 {
	return t.beside[above].track.Outstanding() + t.beside[below].track.Outstanding()
}

func (t *thread) poll() error {
	n, err := t.poller.Poll()
	t.idle = n == 0
	return err
}

// put puts the next part of this thread's first or last row into the halo of the neighbor on that
// side, or polls if there is no room.
func (t *thread) put() error {
	to := &t.beside[t.side]
	if t.at == 0 {
		t.encode()
	}
	off, n := t.at*element, t.points*element
	wr := verbs.SendWR{Opcode: verbs.OpRDMAWrite, RemoteAddr: to.halo[t.exchanges%2] + uint64(off), RKey: to.rkey}
	t.setData(&wr, t.memory.send[t.side]+off, n)
	posted, err := to.track.Post(wr)
	if err != nil {
		return err
	}
	if !posted {
		return t.poll()
	}
	t.puts++
	if t.at += t.points; t.at == t.hi-t.lo {
		t.next()
	}
	return nil
}

// next continues with the other side, or with waiting.
func (t *thread) next() {
	t.at = 0
	if t.side++; t.side == sides {
		t.side, t.phase = 0, wait
	}
}

// setData makes wr put n bytes of the thread's memory.
func (t *thread) setData(wr *verbs.SendWR, off, n int) {
	if t.inline {
		wr.Flags, wr.Inline = verbs.SendInline, t.memory.bytes()[off:off+n]
		return
	}
	t.sge[0] = t.memory.mr.SGE(off, n)
	wr.SGList = t.sge[:]
}

// encode writes the points of a side.
func (t *thread) encode() {
	band := t.grid[t.n%2]
	row := band.row(0)
	if t.side == below {
		row = band.row(band.rows - 1)
	}
	encode(t.memory.bytes()[t.memory.send[t.side]:], row[t.lo:t.hi])
}

// waited continues after all posted work requests are complete.
func (t *thread) waited() {
	if t.phase == wait {
		t.exchanges++
		t.phase = report
		return
	}
	t.sent.Store(t.exchanges) // pairs with Load in met: the data was put before
	t.generation = t.barrier.arrive()
	t.phase = atBarrier
}

// reportExchange puts the number of exchanges to the next neighbor in another process.
func (t *thread) reportExchange() error {
	for ; t.side < sides; t.side++ {
		to := &t.beside[t.side]
		if to.word == 0 {
			continue
		}
		t.memory.ownCount().Store(t.exchanges)
		wr := verbs.SendWR{Opcode: verbs.OpRDMAWrite, RemoteAddr: to.word, RKey: to.rkey}
		t.setData(&wr, t.memory.own, element)
		posted, err := to.track.Post(wr)
		if err != nil {
			return err
		}
		if !posted {
			return t.poll()
		}
		t.side++
		return nil
	}
	t.side, t.phase = 0, awaitReports
	return nil
}

// exchangeComplete reports whether the rank's threads have completed as many exchanges as this one, and whether
// the puts of its neighbors in this exchange have arrived.
func (t *thread) exchangeComplete() bool {
	if !t.barrier.passed(t.generation) {
		return false
	}
	for side := range sides {
		if t.beside[side].sent.Load() < t.exchanges {
			return false
		}
	}
	return true
}

// iterate computes an iteration with the halos of the last exchange, and starts the exchange of the
// result. The last result is also exchanged, and not used. A neighbor writes to the same halo again
// two exchanges later; before that it needs the next exchange of this thread.
func (t *thread) iterate() {
	cur, next, parity := t.n%2, (t.n+1)%2, int((t.exchanges-1)%2)
	for side := range sides {
		decode(t.rows[side], t.memory.halo(parity, side))
	}
	t.grid[cur].update(t.grid[next], t.lo, t.hi, t.rows[above], t.rows[below])
	t.n++
	t.phase = put
}

// restart starts a run of n iterations. All earlier steps must have returned.
func (t *thread) restart(n int) {
	t.phase, t.side, t.at = put, 0, 0
	t.n, t.total, t.puts = 0, n, 0
}
