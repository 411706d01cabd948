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
	srq       *sharedRecv // nil without SRQ

	sendMu   sync.Mutex
	sq       *ring
	pi       uint32
	ssn      uint32          // sequence number of the next send
	doorbell *uverbs.Command // makes the kernel process sq

	recvMu     sync.Mutex
	rq         *ring // nil with an SRQ
	rpi        uint32
	maxRecvSGE int

	state  atomic.Uint32 // state of the last Modify
	failed atomic.Bool   // a work request failed: the device may have moved the QP to ERR

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

// create creates the QP in the kernel and returns the descriptions of its queues.
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

// open maps the queues and prepares the commands. It returns the capabilities of the mapped queues.
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

// postWQESize is the WQE size of post commands, in bytes. The kernel requires sizeof(struct ib_uverbs_send_wr) or more,
// although the command contains no WQE.
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

// State implements verbs.QPProvider. In the states that the device can change by itself, State queries the kernel.
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

// maxRetryCnt is the maximum number of retries. rxe interprets 7 as no limit, which the IBTA specification defines only
// for RNR retries (rxe_completer in rxe_comp.c).
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

// toERR moves the QP to ERR. The kernel then flushes all posted work requests. In ERR, toERR flushes those posted since.
func (q *queuePair) toERR() error {
	return q.Modify(&verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState)
}

// reset removes the completions of the QP from its CQs and resets the indexes. The kernel has emptied its work queues.
func (q *queuePair) reset() {
	q.failed.Store(false)
	q.sendMu.Lock()
	q.pi, q.ssn = q.sq.producer(), 0
	q.sendMu.Unlock()
	q.clean()
}

// clean removes the completions of the QP from its CQs.
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

// Close implements verbs.QPProvider. It first moves a QP with an SRQ to ERR. The kernel then completes the SRQ receive
// that the QP is filling; otherwise that receive would be lost.
func (q *queuePair) Close() error {
	if q.srq != nil && q.state.Load() > uint32(verbs.QPStateInit) {
		_ = q.toERR() // on error, destroy the QP all the same
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

// A qpTable has two levels: the upper bits of a QPN select a leaf, the lower 12 bits an entry of the leaf.
const (
	qpnLeafBits = 12
	qpnLeafLen  = 1 << qpnLeafBits
	qpnLen      = 1 << 24
)

// qpTable maps QPNs to QPs. Several goroutines may use it.
type qpTable struct {
	leaves [qpnLen / qpnLeafLen]atomic.Pointer[[qpnLeafLen]atomic.Pointer[queuePair]]
}

// get returns the QP with number n, or nil.
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

// set stores q, which may be nil, as the QP with number n, of 24 bits.
func (t *qpTable) set(n uint32, q *queuePair) {
	at := &t.leaves[n%qpnLen>>qpnLeafBits]
	if at.Load() == nil {
		at.CompareAndSwap(nil, new([qpnLeafLen]atomic.Pointer[queuePair]))
	}
	at.Load()[n%qpnLeafLen].Store(q)
}
