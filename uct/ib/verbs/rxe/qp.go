package rxe

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// queuePair is an RC or UD QP.
type queuePair struct {
	qpn       uint32
	typ       verbs.QPType
	sigAll    bool
	maxSGE    int
	maxInline int
	srq       *sharedRecv // nil without one

	sendMu   sync.Mutex
	sq       *ring
	pi       uint32
	ssn      uint32          // of the next send
	doorbell *uverbs.Command // has the kernel look at sq

	recvMu     sync.Mutex
	rq         *ring // nil with an SRQ
	rpi        uint32
	maxRecvSGE int

	state  atomic.Uint32 // as Modify has set it
	failed atomic.Bool   // the device has moved the QP to ERR

	prov           *provider
	v              *verbs.QP
	handle         uint32
	id             uint64
	sendCQ, recvCQ *compQueue
}

// CreateQP implements verbs.Provider.
func (p *provider) CreateQP(v *verbs.QP, attr verbs.QPInitAttr) (_ verbs.QPProvider, _ verbs.QPCap, err error) {
	if attr.Type != verbs.QPTypeRC && attr.Type != verbs.QPTypeUD {
		return nil, verbs.QPCap{}, opError("create QP", fmt.Errorf("device %s has no QPs of type %v: %w", p.ctx.Name, attr.Type, ucs.ErrUnsupported))
	}
	q := &queuePair{prov: p, v: v, typ: attr.Type, sigAll: attr.SigAll, id: p.objects.reserve(),
		sendCQ: attr.SendCQ.Provider().(*compQueue), recvCQ: attr.RecvCQ.Provider().(*compQueue)}
	if attr.SRQ != nil {
		q.srq = attr.SRQ.Provider().(*sharedRecv)
	}
	queues, err := q.create(&attr)
	if err != nil {
		return nil, verbs.QPCap{}, err
	}
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			_ = undo.Run()
		}
	}()
	undo.Add(q.destroy)
	got, err := q.open(&attr.Cap, queues, &undo)
	if err != nil {
		return nil, verbs.QPCap{}, err
	}
	p.objects.add(q.id, q)
	p.qps.set(q.qpn, q)
	return q, got, nil
}

// create makes the QP in the kernel.
func (q *queuePair) create(attr *verbs.QPInitAttr) (queues createQPReply, err error) {
	want := uverbs.QPCap{MaxSendWR: uint32(max(attr.Cap.MaxSendWR, 1)), MaxSendSGE: uint32(max(attr.Cap.MaxSendSGE, 1)),
		MaxInline: uint32(attr.Cap.MaxInline)}
	if q.srq == nil {
		want.MaxRecvWR, want.MaxRecvSGE = uint32(max(attr.Cap.MaxRecvWR, 1)), uint32(max(attr.Cap.MaxRecvSGE, 1))
	}
	var got uverbs.QPCap
	attrs := []uverbs.Attr{
		uverbs.Object(uverbs.AttrHandle, 0),
		uverbs.Object(uverbs.QPAttrPD, handleOf(q.v.PD())),
		uverbs.Object(uverbs.QPAttrSendCQ, q.sendCQ.handle),
		uverbs.Object(uverbs.QPAttrRecvCQ, q.recvCQ.handle),
		uverbs.In(uverbs.QPAttrUser, &q.id),
		uverbs.In(uverbs.QPAttrCap, &want),
		uverbs.Const(uverbs.QPAttrType, uint64(q.typ)),
		uverbs.Out(uverbs.QPAttrReplyCap, &got),
		uverbs.Out(uverbs.QPAttrReplyNumber, &q.qpn),
		uverbs.Out(uverbs.AttrDriverOut, &queues),
	}
	if q.srq != nil {
		attrs = append(attrs, uverbs.Object(uverbs.QPAttrSRQ, q.srq.handle))
	}
	if err = q.prov.ctx.Call(uverbs.MethodCreateQP, attrs...); err != nil {
		return queues, err
	}
	q.handle = uint32(attrs[0].Value)
	return queues, nil
}

// open maps the queues and prepares the commands. It returns what the queues have room for.
func (q *queuePair) open(want *verbs.QPCap, queues createQPReply, undo *cleanup.Stack) (got verbs.QPCap, err error) {
	ctx := q.prov.ctx
	q.maxSGE, q.maxInline = max(want.MaxSendSGE, 1), want.MaxInline
	if q.sq, err = mapRing(ctx, queues.Send, sendWQELen+max(sgeLen*q.maxSGE, q.maxInline)); err != nil {
		return got, err
	}
	undo.Add(q.sq.unmap)
	q.pi = q.sq.producer()
	got = verbs.QPCap{MaxSendWR: q.sq.depth(), MaxSendSGE: q.maxSGE, MaxInline: q.maxInline}
	if err = q.prepareDoorbell(undo); err != nil {
		return got, err
	}
	if q.srq == nil {
		q.maxRecvSGE = max(want.MaxRecvSGE, 1)
		if q.rq, err = mapRing(ctx, queues.Recv, recvWQELen+sgeLen*q.maxRecvSGE); err != nil {
			return got, err
		}
		undo.Add(q.rq.unmap)
		q.rpi = q.rq.producer()
		got.MaxRecvWR, got.MaxRecvSGE = q.rq.depth(), q.maxRecvSGE
	}
	if got.MaxSendWR < want.MaxSendWR || q.srq == nil && got.MaxRecvWR < want.MaxRecvWR {
		return got, opError("create QP", fmt.Errorf("%w: depths %d and %d, want %d and %d", ucs.ErrInternal,
			got.MaxSendWR, got.MaxRecvWR, want.MaxSendWR, want.MaxRecvWR))
	}
	return got, nil
}

// postWQESize is more than sizeof(struct ib_uverbs_send_wr), which the kernel wants although there is none.
const postWQESize = 128

func (q *queuePair) prepareDoorbell(undo *cleanup.Stack) (err error) {
	post := uverbs.Post{QP: q.handle, WQESize: postWQESize}
	var reply uverbs.PostReply
	q.doorbell, err = q.prov.ctx.NewCommand(uverbs.CmdPostSend, uverbs.BytesOf(&post), len(uverbs.BytesOf(&reply)))
	if err == nil {
		undo.Add(func() error { q.doorbell.Free(); return nil })
	}
	return err
}

// Number implements verbs.QPProvider.
func (q *queuePair) Number() uint32 { return q.qpn }

// State implements verbs.QPProvider. From the states in which the device moves a QP by itself the kernel is asked.
func (q *queuePair) State() verbs.QPState {
	s := verbs.QPState(q.state.Load())
	switch s {
	case verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateErr:
		return s
	}
	if q.failed.Load() {
		return verbs.QPStateErr
	}
	in := uverbs.QueryQP{QP: q.handle, Mask: uint32(verbs.QPMaskState)}
	var out uverbs.QueryQPReply
	if err := q.prov.ctx.Invoke(uverbs.CmdQueryQP, uverbs.BytesOf(&in), uverbs.BytesOf(&out)); err != nil {
		return s
	}
	return verbs.QPState(out.State)
}

// maxRetryCnt is the largest number of retries. rxe takes 7 for no limit, as the IBTA specification has it for RNR
// retries only (rxe_completer in rxe_comp.c).
const maxRetryCnt = 6

// Modify implements verbs.QPProvider.
func (q *queuePair) Modify(a *verbs.QPAttr, mask verbs.QPAttrMask) error {
	in := uverbs.ModifyQP{QP: q.handle, Mask: uint32(mask), QKey: a.QKey, RQPSN: a.RQPSN, SQPSN: a.SQPSN, DestQPN: a.DestQPN,
		AccessFlags: uint32(a.AccessFlags), PKeyIndex: a.PKeyIndex, State: uint8(a.State), CurState: uint8(a.CurState), PathMTU: uint8(a.PathMTU),
		MaxRDAtomic: a.MaxRDAtomic, MaxDestRD: a.MaxDestRD, MinRNRTimer: a.MinRNRTimer, Port: a.Port, Timeout: a.Timeout,
		RetryCnt: min(a.RetryCnt, maxRetryCnt), RNRRetry: a.RNRRetry}
	if mask&verbs.QPMaskAV != 0 {
		in.Dest = uverbs.QPDest{DGID: a.AH.DGID, FlowLabel: a.AH.FlowLabel, DLID: a.AH.DLID, SGIDIndex: a.AH.SGIDIndex,
			HopLimit: a.AH.HopLimit, TrafficClass: a.AH.TrafficClass, SL: a.AH.SL, IsGlobal: flag(a.AH.Global), Port: a.AH.Port}
	}
	if err := q.prov.ctx.Invoke(uverbs.CmdModifyQP, uverbs.BytesOf(&in), nil); err != nil {
		return err
	}
	if mask&verbs.QPMaskState == 0 {
		return nil
	}
	q.state.Store(uint32(a.State))
	if a.State == verbs.QPStateReset {
		q.reset()
	}
	return nil
}

// toERR moves the QP to ERR, in which the kernel flushes what is posted. From ERR it does so again.
func (q *queuePair) toERR() error {
	return q.Modify(&verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState)
}

// reset drops what the QP has left in its completion queues. The kernel has emptied its work queues.
func (q *queuePair) reset() {
	q.failed.Store(false)
	q.sendMu.Lock()
	q.pi, q.ssn = q.sq.producer(), 0
	q.sendMu.Unlock()
	q.clean()
}

// clean removes the completions of the QP.
func (q *queuePair) clean() {
	q.sendCQ.clean(q)
	if q.recvCQ != q.sendCQ {
		q.recvCQ.clean(q)
	}
}

func (q *queuePair) destroy() error {
	var reply uverbs.DestroyReply
	return q.prov.ctx.Call(uverbs.MethodDestroyQP, uverbs.Object(uverbs.AttrHandle, q.handle), uverbs.Out(uverbs.DestroyAttrReply, &reply))
}

// Close implements verbs.QPProvider. In ERR the kernel completes a receive of an SRQ that the QP has taken for a message
// that is not complete; otherwise it would be lost.
func (q *queuePair) Close() error {
	if q.srq != nil && q.state.Load() > uint32(verbs.QPStateInit) {
		_ = q.toERR() // destroying it ends the QP all the same
	}
	if err := q.destroy(); err != nil {
		return err
	}
	q.clean()
	q.prov.qps.set(q.qpn, nil)
	q.prov.objects.remove(q.id)
	q.doorbell.Free()
	return errors.Join(q.sq.unmap(), q.rq.unmap())
}

// Parts of a QPN in a qpTable.
const (
	qpnLeafBits = 12
	qpnLeafLen  = 1 << qpnLeafBits
	qpnLen      = 1 << 24
)

// qpTable finds a QP by its number. Any goroutine.
type qpTable struct {
	leaves [qpnLen / qpnLeafLen]atomic.Pointer[[qpnLeafLen]atomic.Pointer[queuePair]]
}

// get returns nil if there is no such QP.
func (t *qpTable) get(n uint32) *queuePair {
	if n >= qpnLen {
		return nil
	}
	leaf := t.leaves[n>>qpnLeafBits].Load()
	if leaf == nil {
		return nil
	}
	return leaf[n%qpnLeafLen].Load()
}

// set makes q, or nil, the QP with a number, which has 24 bits.
func (t *qpTable) set(n uint32, q *queuePair) {
	at := &t.leaves[n%qpnLen>>qpnLeafBits]
	if at.Load() == nil {
		at.CompareAndSwap(nil, new([qpnLeafLen]atomic.Pointer[queuePair]))
	}
	at.Load()[n%qpnLeafLen].Store(q)
}
