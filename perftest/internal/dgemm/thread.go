package dgemm

import (
	"github.com/gucx/gucx/perftest/internal/msgrate"
	"github.com/gucx/gucx/perftest/internal/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// phase is what a thread does next.
type phase uint8

const (
	getA phase = iota
	getB
	wait // for both tiles
	putC
	flush
)

// thread computes every n-th tile of C. It implements steps.Stepper.
type thread struct {
	layout layout
	id     int
	every  int // threads

	qp     *verbs.QP
	poller steps.Poller
	credit *steps.Credit
	there  msgrate.Destination
	mr     [matrices]*verbs.MR
	inline bool
	wr     [1]verbs.SendWR
	sge    [1]verbs.SGE
	acc    []float64

	phase      phase
	tile, k    int // tile of C by number, and of the sum
	idle       bool
	gets, puts int64
}

// Idle implements steps.Stepper.
func (t *thread) Idle() bool { return t.idle }

// Step implements steps.Stepper: one call of post or of poll.
func (t *thread) Step() (more bool, err error) {
	m := t.layout.perRow()
	if t.tile >= m*m {
		return false, nil
	}
	row, col := t.tile/m, t.tile%m
	t.idle = false
	switch t.phase {
	case getA:
		t.phase = getB
		return true, t.get(matrixA, row, t.k)
	case getB:
		t.phase = wait
		return true, t.get(matrixB, t.k, col)
	case putC:
		t.phase = flush
		return true, t.put(row, col)
	}
	if t.credit.Outstanding() > 0 {
		n, err := t.poller.Poll()
		t.idle = n == 0
		return true, err
	}
	t.arrived(m)
	return true, nil
}

// arrived goes on after what was posted is complete.
func (t *thread) arrived(m int) {
	if t.phase == flush {
		t.tile += t.every
		t.phase = getA
		return
	}
	multiply(t.acc, t.mr[matrixA].Bytes(), t.mr[matrixB].Bytes(), t.layout.tile)
	t.phase = getA
	if t.k++; t.k < m {
		return
	}
	c := t.mr[matrixC].Bytes()
	for i, v := range t.acc {
		store(c[i*element:], v)
		t.acc[i] = 0
	}
	t.k, t.phase = 0, putC
}

func (t *thread) get(matrix, i, j int) error {
	t.gets++
	t.sge[0] = t.mr[matrix].SGE(0, t.layout.tileLen())
	return t.post(verbs.SendWR{Opcode: verbs.OpRDMARead, SGList: t.sge[:]}, t.layout.at(matrix, i, j))
}

func (t *thread) put(i, j int) error {
	t.puts++
	wr := verbs.SendWR{Opcode: verbs.OpRDMAWrite}
	if t.inline {
		wr.Flags, wr.Inline = verbs.SendInline, t.mr[matrixC].Bytes()
	} else {
		t.sge[0] = t.mr[matrixC].SGE(0, t.layout.tileLen())
		wr.SGList = t.sge[:]
	}
	return t.post(wr, t.layout.at(matrixC, i, j))
}

func (t *thread) post(wr verbs.SendWR, offset int) error {
	wr.ID, wr.Flags = uint64(t.id), wr.Flags|verbs.SendSignaled
	wr.RemoteAddr, wr.RKey = t.there.Addr+uint64(offset), t.there.RKey
	t.wr[0] = wr
	t.credit.Post()
	_, err := t.qp.PostSend(t.wr[:])
	return err
}
