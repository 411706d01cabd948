package softhca

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/testenv"
)

// nop posts a signaled NOP work request, without a doorbell.
func (qp *queuePair) nop(index uint16) {
	prm.PutCtrl(qp.sq.BB(uint32(index)), prm.CtrlWord(prm.OpNOP, index, qp.qpn, 1), prm.CtrlCQUpdate, 0)
	qp.dbrec.StoreSend(index + 1)
}

// completed reports whether the CQ has an entry at index i.
func (cq *compQueue) completed(i uint32) bool {
	return cq.view.Slot(i).Tail().Owned(cq.view.Owner(i))
}

// TestRunOrSchedule_WhileAnotherThreadExecutes: the thread that executes the QP may have read the doorbell
// record before a post. The thread that drives the device executes the work request, without another
// doorbell.
func TestRunOrSchedule_WhileAnotherThreadExecutes(t *testing.T) {
	h := openTest(t)
	qp := newTestQP(t, h)
	for i := range qp.sendCQ.view.Count() {
		qp.sendCQ.view.Slot(i).Init()
	}
	qp.exec.Lock()
	qp.nop(0)
	qp.runOrSchedule()
	assert.False(t, qp.sendCQ.completed(0), "executed by two threads")
	qp.exec.Release()
	testenv.ProgressWithin(t, testPatience, func() bool {
		h.Drive()
		return qp.sendCQ.completed(0)
	})
}
