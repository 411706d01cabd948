package softhca

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// srqRig is an RC QP connected to itself, with an SRQ of two entries.
type srqRig struct {
	h   *hca
	l   *outLink
	qp  *queuePair
	own *recvQueue // the original one, which the SRQ has replaced
	sge verbs.SGE
}

const (
	srqEntries = 2
	srqStride  = 5 // log2 of the length of a next segment and a data segment
)

// newSRQRig creates one on a loop device.
func newSRQRig(t *testing.T) *srqRig {
	t.Helper()
	h, err := open(Config{Fabric: FabricLoop}, &uarPool{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	r := &srqRig{h: h, qp: newTestQP(t, h)}
	for i := range r.qp.recvCQ.view.Count() {
		r.qp.recvCQ.view.Slot(i).Init()
	}
	r.l, err = h.linkTo(h.gid)
	require.NoError(t, err)
	buf := make([]byte, 64)
	_, key, err := h.RegMR(1, buf, verbs.AccessLocalWrite)
	require.NoError(t, err)
	r.sge = verbs.SGE{Addr: uint64(uintptr(unsafe.Pointer(&buf[0]))), Length: 64, LKey: key}
	mem, rec := make([]prm.BB, 2), new(uint64)
	base := unsafe.Add(unsafe.Pointer(&mem[0]), -uintptr(unsafe.Pointer(&mem[0]))&(prm.BBLen-1))
	srqn, err := h.CreateSRQ(prm.SRQParams{PDN: 1, Buf: base, Count: srqEntries, Stride: srqStride,
		DBRec: prm.NewDBRec(unsafe.Pointer(rec)), MaxSGE: 1})
	require.NoError(t, err)
	q := h.srqs.get(srqn)
	for i := range uint32(srqEntries) {
		segs := q.view.Entry(i)
		prm.PutSRQNext(&segs[0], uint16(i+1)%srqEntries)
		prm.PutData(&segs[1], r.sge)
	}
	q.dbrec.StoreRecv(srqEntries)
	r.own = r.qp.rq
	r.receiveFrom(q)
	return r
}

// receiveFrom makes q the receive queue of the QP.
func (r *srqRig) receiveFrom(q *recvQueue) {
	r.h.driving.Lock()
	defer r.h.driving.Unlock()
	r.qp.rq = q
}

// packet sends a packet of a send to the QP.
func (r *srqRig) packet(flags uint8) {
	r.l.txLock.Lock()
	pkt := r.l.req.Reserve(8)
	pkt.Op, pkt.Flags, pkt.MSN, pkt.Total = ring.OpSend, flags, 0, 16
	pkt.SrcQPN, pkt.DstQPN = r.qp.qpn, r.qp.qpn
	r.l.req.Publish(pkt)
	r.l.txLock.Unlock()
	r.h.call(attnRequest)
}

// awaitFirst waits until the first packet of a message has consumed an entry.
func (r *srqRig) awaitFirst(t *testing.T) {
	t.Helper()
	testenv.ProgressWithin(t, testPatience, func() bool {
		r.h.Drive()
		q := r.qp.rq
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.consumed == 1
	})
}

// If the QP of an open message stops, the consumed entry of the SRQ completes as flushed, so that it
// can be posted again. Posted entries are not affected.
func TestSRQ_QPStopsDuringMessage(t *testing.T) {
	for name, end := range map[string]func(r *srqRig) error{
		"ERR": func(r *srqRig) error {
			return r.h.ModifyQP(r.qp.qpn, &verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState)
		},
		"RESET": func(r *srqRig) error {
			return r.h.ModifyQP(r.qp.qpn, &verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState)
		},
		"destroyed": func(r *srqRig) error { return r.h.DestroyQP(r.qp.qpn) },
		"link down": func(r *srqRig) error { r.qp.handlePeerGone(r.qp.req.link); return nil },
		"peer's fault": func(r *srqRig) error {
			r.h.driving.Lock()
			defer r.h.driving.Unlock()
			r.qp.peerFault(prm.SyndromeRemoteAccess)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSRQRig(t)
			q, cq := r.qp.rq, r.qp.recvCQ
			r.packet(ring.FlagFirst)
			r.awaitFirst(t)
			assert.False(t, cq.completed(0))
			require.NoError(t, end(r))
			testenv.ProgressWithin(t, testPatience, func() bool {
				r.h.Drive()
				return cq.completed(0)
			})
			var e prm.CQE
			require.True(t, cq.view.Slot(0).Read(&e, 0))
			assert.Equal(t, prm.CQE{Opcode: prm.CQERespErr, Syndrome: prm.SyndromeWRFlush, QPN: r.qp.qpn,
				UserIndex: testUserIndex, WQECounter: 0}, e)
			r.packet(ring.FlagLast)
			for range 10 {
				r.h.Drive()
			}
			assert.False(t, cq.completed(1), "more than one completion for an entry")
			assert.EqualValues(t, 1, q.consumed, "number of consumed entries")
		})
	}
}

// A message that is sent again from its first packet, as its requester was reset, fills the entry that
// it has already consumed.
func TestSRQ_RestartedMessageKeepsEntry(t *testing.T) {
	r := newSRQRig(t)
	r.packet(ring.FlagFirst)
	r.awaitFirst(t)
	r.packet(ring.FlagFirst)
	r.packet(ring.FlagLast)
	testenv.ProgressWithin(t, testPatience, func() bool {
		r.h.Drive()
		return r.qp.recvCQ.completed(0)
	})
	var e prm.CQE
	require.True(t, r.qp.recvCQ.view.Slot(0).Read(&e, 0))
	assert.Equal(t, prm.CQERespSend, e.Opcode)
	assert.EqualValues(t, 16, e.ByteCount)
	assert.EqualValues(t, 1, r.qp.rq.consumed)
	assert.False(t, r.qp.recvCQ.completed(1))
}

// The receives of a QP without SRQ are flushed in order, that of the open message first.
func TestErr_FlushesReceiveOfOpenMessage(t *testing.T) {
	r := newSRQRig(t)
	q := r.own
	q.maxSGE = 1
	for i := range uint32(2) {
		prm.PutData(&q.view.Entry(i)[0], r.sge)
	}
	q.dbrec.StoreRecv(2)
	r.receiveFrom(q)
	r.packet(ring.FlagFirst)
	r.awaitFirst(t)
	require.NoError(t, r.h.ModifyQP(r.qp.qpn, &verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState))
	for i := range uint32(2) {
		var e prm.CQE
		require.True(t, r.qp.recvCQ.view.Slot(i).Read(&e, 0))
		assert.Equal(t, prm.SyndromeWRFlush, e.Syndrome)
		assert.EqualValues(t, i, e.WQECounter)
	}
	assert.False(t, r.qp.recvCQ.completed(2))
}
