package softhca_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// newFlushing returns a QP with the CQ of the node whose work requests the device flushes.
func (n *node) newFlushing() *verbs.QP {
	qp := n.newQP()
	n.t.Cleanup(func() { require.NoError(n.t, qp.Close()) })
	initQP(n.t, qp, anyone)
	require.NoError(n.t, qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState))
	return qp
}

// flush posts count work requests to a QP in ERR.
func (n *node) flush(qp *verbs.QP, count int) {
	n.t.Helper()
	wrs := make([]verbs.SendWR, count)
	for i := range wrs {
		wrs[i] = verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled}
	}
	_, err := qp.PostSend(wrs)
	require.NoError(n.t, err)
}

// drain polls until the CQ is empty, and returns the number of completions.
func (n *node) drain() (count int) {
	n.t.Helper()
	for {
		got := n.cq.Poll(n.wcs[:])
		if got <= 0 {
			return count
		}
		count += got
	}
}

// TestCQ_OverrunIsPermanent: a CQ that has overrun accepts no more completions, also after polls have
// released entries: polls return its entries, and then only an error. There is one event. A QP in RTS
// with this CQ goes to ERR, and one with another CQ does not.
func TestCQ_OverrunIsPermanent(t *testing.T) {
	for name, single := range map[string]bool{"shared": false, "single-threaded": true} {
		t.Run(name, func(t *testing.T) {
			n := openNode(t, softhca.Config{Fabric: softhca.FabricLoop})
			cq, err := n.ctx.CreateCQ(verbs.CQInitAttr{Depth: 15, SingleThreaded: single})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, cq.Close()) })
			lost := *n
			lost.cq = cq
			lost.qp = lost.newQP()
			t.Cleanup(func() { require.NoError(t, lost.qp.Close()) })
			connect(&lost, n, defaultLink)
			flushing := lost.newFlushing()
			holds := cq.Depth() + 1

			lost.flush(flushing, holds)
			require.Equal(t, holds, lost.drain(), "the CQ is full, and has not overrun")
			lost.flush(flushing, holds+1)
			ev, err := n.ctx.NextAsyncEvent()
			require.NoError(t, err)
			assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: cq}, ev)
			require.Equal(t, holds, lost.drain(), "completions from before the overrun")
			for range 3 {
				lost.flush(flushing, 1)
				lost.send(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
					SGList: []verbs.SGE{n.mr.SGE(0, 8)}, RemoteAddr: n.mr.Addr(), RKey: n.mr.RKey()})
				require.Equal(t, -1, cq.Poll(n.wcs[:]))
			}
			ev, err = n.ctx.NextAsyncEvent()
			require.NoError(t, err)
			assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: lost.qp}, ev, "no other event before it")
			assert.Equal(t, verbs.QPStateErr, lost.qp.State())
			assert.Equal(t, verbs.QPStateRTS, n.qp.State())
		})
	}
}
