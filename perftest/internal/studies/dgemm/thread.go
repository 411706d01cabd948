package dgemm

import (
	"time"

	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/perftest/internal/studies/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// phase is the next action of a thread.
type phase uint8

const (
	getA phase = iota
	getB
	wait // for both tiles
	putC
	flush
)

// spent is the number of messages of a kind, and the sum of the times from the first post of a tile
// to its last completion.
type spent struct {
	messages int64
	time     time.Duration
}

// rate returns messages per second; 0 without messages.
func (s spent) rate() float64 {
	if s.time <= 0 {
		return 0
	}
	return float64(s.messages) / s.time.Seconds()
}

// thread computes every n-th tile of C. It implements steps.Stepper.
type thread struct {
	layout layout
	every  int // threads

	track  *steps.Track
	poller *steps.Poller
	there  msgrate.Destination
	mr     [matrices]*verbs.MR
	inline bool
	now    func() time.Duration
	sge    [1]verbs.SGE
	acc    []float64

	phase      phase
	tile, k    int // number of the tile of C, and of the tiles in its sum
	row        int // next row of the current tile
	began      time.Duration
	idle       bool
	gets, puts spent
}

// Idle implements steps.Stepper.
func (t *thread) Idle() bool { return t.idle }

// Step implements steps.Stepper: one call of post or of poll.
func (t *thread) Step() (more bool, err error) {
	if t.tile >= t.layout.tiles() {
		return false, nil
	}
	m := t.layout.across()
	i, j := t.tile/m, t.tile%m
	t.idle = false
	switch t.phase {
	case getA:
		return true, t.post(matrixA, i, t.k, &t.gets)
	case getB:
		return true, t.post(matrixB, t.k, j, &t.gets)
	case putC:
		return true, t.post(matrixC, i, j, &t.puts)
	}
	if t.track.Outstanding() > 0 {
		return true, t.poll()
	}
	t.arrived(m)
	return true, nil
}

func (t *thread) poll() error {
	n, err := t.poller.Poll()
	t.idle = n == 0
	return err
}

// post posts the next row of tile i, j of a matrix, or polls if there is no room. After the last
// row it selects the next phase.
func (t *thread) post(matrix, i, j int, s *spent) error {
	if t.row == 0 && matrix != matrixB {
		t.began = t.now()
	}
	l, rows := t.layout, t.layout.rowsOf(matrix)
	wr := t.request(matrix)
	wr.RemoteAddr, wr.RKey = t.there.Addr+uint64(l.index(matrix, i*rows+t.row, j*l.tile)), t.there.RKey
	posted, err := t.track.Post(wr)
	if err != nil {
		return err
	}
	if !posted {
		return t.poll()
	}
	s.messages++
	if t.row++; t.row == rows {
		t.row = 0
		t.phase++
	}
	return nil
}

// request returns a get or a put of the row, without its address on the server.
func (t *thread) request(matrix int) verbs.SendWR {
	n := t.layout.rowLen()
	wr := verbs.SendWR{Opcode: verbs.OpRDMARead}
	if matrix == matrixC {
		wr.Opcode = verbs.OpRDMAWrite
		if t.inline {
			wr.Flags, wr.Inline = verbs.SendInline, t.mr[matrix].Bytes()[t.row*n:][:n]
			return wr
		}
	}
	t.sge[0] = t.mr[matrix].SGE(t.row*n, n)
	wr.SGList = t.sge[:]
	return wr
}

// arrived continues after everything posted is complete.
func (t *thread) arrived(m int) {
	took := t.now() - t.began
	if t.phase == flush {
		t.puts.time += took
		t.phase = getA
		if t.k++; t.k == m {
			t.k, t.tile = 0, t.tile+t.every
			clear(t.acc)
		}
		return
	}
	t.gets.time += took
	t.layout.multiply(t.acc, t.mr[matrixA].Bytes(), t.mr[matrixB].Bytes())
	c := t.mr[matrixC].Bytes()
	for i, v := range t.acc {
		store(c[i*element:], v)
	}
	t.phase = putC
}
