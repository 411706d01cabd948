package stencil

import (
	"sync/atomic"

	"github.com/gucx/gucx/perftest/internal/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Sides of a band, and what a QP leads to.
const (
	above = iota
	below
	sides
)

// barrier lets threads go on when all have arrived. Any goroutine.
type barrier struct {
	threads    int64
	arrived    atomic.Int64
	generation atomic.Int64
}

// arrive returns the generation to wait for the end of.
func (b *barrier) arrive() int64 {
	g := b.generation.Load()
	if b.arrived.Add(1) == b.threads {
		b.arrived.Store(0)
		b.generation.Add(1)
	}
	return g
}

func (b *barrier) passed(g int64) bool { return b.generation.Load() != g }

// phase is what a thread does next.
type phase uint8

const (
	putAbove phase = iota // sides, in their order
	putBelow
	wait
	meet
)

// neighbor is where the halo of a thread beside this one is: by parity of the
// iteration, and nil rows without a neighbor.
type neighbor struct {
	qp   *verbs.QP // nil at the border of the grid
	addr [2]uint64
	rkey uint32
}

// thread has columns [lo, hi) of a rank's band. It implements steps.Stepper.
type thread struct {
	id     int // in the rank
	grid   *[2]band
	lo, hi int

	poller steps.Poller
	credit *steps.Credit
	beside [sides]neighbor
	halo   [2][sides][]byte // by parity: where neighbors put
	send   [sides][]byte
	mr     *verbs.MR
	inline bool
	all    *barrier
	wr     [1]verbs.SendWR
	sge    [1]verbs.SGE
	sendAt [sides]int // offsets of send in mr
	rows   [sides][]float64

	phase      phase
	n, total   int   // iterations
	generation int64 // of the barrier
	idle       bool
	puts       int64
}

// Idle implements steps.Stepper.
func (t *thread) Idle() bool { return t.idle }

// Step implements steps.Stepper: one call of post or of poll, or a look at the barrier.
func (t *thread) Step() (more bool, err error) {
	t.idle = false
	switch t.phase {
	case putAbove, putBelow:
		side := int(t.phase)
		t.phase++
		return true, t.put(side)
	case wait:
		if t.credit.Outstanding() > 0 {
			n, err := t.poller.Poll()
			t.idle = n == 0
			return true, err
		}
		t.generation = t.all.arrive()
		t.phase = meet
		return true, nil
	}
	if !t.all.passed(t.generation) {
		t.idle = true
		return true, nil
	}
	if t.n == t.total {
		return false, nil
	}
	t.iterate()
	return true, nil
}

// iterate does an iteration with the halos of the last exchange, and has the result
// exchanged. The last result is exchanged too, and not used.
func (t *thread) iterate() {
	cur, next := t.n%2, (t.n+1)%2
	for side := range sides {
		decode(t.rows[side], t.halo[cur][side])
	}
	t.grid[cur].update(t.grid[next], t.lo, t.hi, t.rows[above], t.rows[below])
	t.n++
	t.phase = putAbove
}

// put puts this thread's part of the first or last row into the halo of the neighbor.
func (t *thread) put(side int) error {
	to := &t.beside[side]
	if to.qp == nil {
		return nil
	}
	parity := t.n % 2
	band := t.grid[parity]
	row := band.row(0)
	if side == below {
		row = band.row(band.rows - 1)
	}
	encode(t.send[side], row[t.lo:t.hi])
	wr := &t.wr[0]
	*wr = verbs.SendWR{ID: uint64(t.id), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
		RemoteAddr: to.addr[parity], RKey: to.rkey}
	if t.inline {
		wr.Flags |= verbs.SendInline
		wr.Inline = t.send[side]
	} else {
		t.sge[0] = t.mr.SGE(t.sendAt[side], len(t.send[side]))
		wr.SGList = t.sge[:]
	}
	t.credit.Post()
	t.puts++
	_, err := to.qp.PostSend(t.wr[:])
	return err
}
