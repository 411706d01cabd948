package provider

import (
	"errors"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// queuePair is a QP: the receive ring, then the send ring in one piece of memory,
// one doorbell record, one micro-UAR.
type queuePair struct {
	sq sendQueue // first: hot

	rq     recvQueue
	prov   *provider
	v      *verbs.QP
	qpn    uint32
	uidx   uint32
	sendCQ *compQueue
	recvCQ *compQueue // nil of an XRC initiator
	srq    *sharedRecv
	td     *threadDomain
	mem    queueMemory
}

// CreateQP implements verbs.Provider.
func (p *provider) CreateQP(v *verbs.QP, attr verbs.QPInitAttr) (_ verbs.QPProvider, _ verbs.QPCap, err error) {
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			_ = undo.Run()
		}
	}()
	q, sq, rq, err := p.prepareQP(v, &attr)
	if err != nil {
		return nil, verbs.QPCap{}, opError("create QP", err)
	}
	if q.mem, err = allocQueue(rq.bytes() + int(sq.count)*prm.BBLen); err != nil {
		return nil, verbs.QPCap{}, err
	}
	undo.Add(q.mem.free)
	if q.sq.dbrec, err = p.dbrecs.get(); err != nil {
		return nil, verbs.QPCap{}, err
	}
	undo.Add(func() error { p.dbrecs.put(q.sq.dbrec); return nil })
	q.getUUAR()
	undo.Add(func() error { q.putUUAR(); return nil })
	q.uidx = p.users.add(owner{qp: q})
	undo.Add(func() error { p.users.remove(q.uidx); return nil })
	if q.qpn, err = p.hw.CreateQP(q.params(&attr, sq, rq)); err != nil {
		return nil, verbs.QPCap{}, opError("create QP", err)
	}
	undo.Add(func() error { return p.hw.DestroyQP(q.qpn) })
	if err = q.openQueues(&attr, sq, rq); err != nil {
		return nil, verbs.QPCap{}, opError("create QP", err)
	}
	p.events.addQP(q.qpn, v)
	p.count(func(r *verbs.Resources) { r.QPs++; r.Bytes.QPs += q.footprint() })
	limits := sq.cap()
	limits.MaxRecvWR, limits.MaxRecvSGE = int(rq.count), rq.maxSGE
	return q, limits, nil
}

// prepareQP collects the parents and computes the sizes.
func (p *provider) prepareQP(v *verbs.QP, attr *verbs.QPInitAttr) (q *queuePair, sq sqSize, rq rqSize, err error) {
	if !p.makes(attr.Type) {
		return nil, sq, rq, ucs.ErrUnsupported
	}
	if sq, err = sizeSQ(attr.Type, attr.Cap); err != nil {
		return nil, sq, rq, err
	}
	q = &queuePair{prov: p, v: v}
	q.sendCQ = attr.SendCQ.Provider().(*compQueue)
	if attr.TD != nil {
		q.td = attr.TD.Provider().(*threadDomain)
	}
	if attr.Type == verbs.QPTypeXRCSend {
		return q, sq, rq, nil
	}
	q.recvCQ = attr.RecvCQ.Provider().(*compQueue)
	if attr.SRQ != nil {
		q.srq = attr.SRQ.Provider().(*sharedRecv)
		return q, sq, rq, nil
	}
	rq, err = sizeRQ(attr.Cap.MaxRecvWR, attr.Cap.MaxRecvSGE)
	return q, sq, rq, err
}

// makes reports whether CreateQP makes QPs of the type.
func (p *provider) makes(typ verbs.QPType) bool {
	switch typ {
	case verbs.QPTypeRC, verbs.QPTypeUD:
		return true
	case verbs.QPTypeXRCSend:
		_, ok := p.hw.(prm.XRCHardware)
		return ok
	}
	return false
}

// params describes the QP to the hardware.
func (q *queuePair) params(attr *verbs.QPInitAttr, sq sqSize, rq rqSize) prm.QPParams {
	locked := q.td == nil && !q.prov.cfg.SingleThreaded
	s := &q.sq
	s.locked, q.rq.locked = locked, locked
	s.datagrams = attr.Type == verbs.QPTypeUD
	s.bfPlain = !q.prov.cfg.InlineBF
	s.doorbell, s.hardware = s.uuar.uar.Doorbell, s.uuar.uar.Doorbell == nil
	params := prm.QPParams{
		Type: attr.Type, PDN: pdn(q.v.PD()), SendCQN: q.sendCQ.cqn,
		SQ: q.mem.at(rq.bytes()), SQCount: sq.count, DBRec: s.dbrec.DBRec, UAR: s.uuar.uar, UserIndex: q.uidx,
		QueueLocked: locked, RegisterLocked: s.uuar.locked,
		Cap: attr.Cap, SigAll: attr.SigAll,
	}
	params.Cap.MaxInline = int(sq.maxInline)
	if rq.count == 0 {
		params.Cap.MaxRecvWR, params.Cap.MaxRecvSGE = 0, 0
	}
	if q.recvCQ != nil {
		params.RecvCQN = q.recvCQ.cqn
	}
	if q.srq != nil {
		params.SRQN = q.srq.handle
	}
	if rq.count > 0 {
		params.RQ, params.RQCount, params.RQStride, params.RQMaxSGE = q.mem.at(0), rq.count, rq.stride, rq.maxSGE
	}
	return params
}

// openQueues initializes the producers of the queues, which need the QPN.
func (q *queuePair) openQueues(attr *verbs.QPInitAttr, sq sqSize, rq rqSize) error {
	view, err := prm.NewSQView(q.mem.at(rq.bytes()), sq.count, q.qpn, attr.Type)
	if err != nil {
		return err
	}
	q.sq.init(prm.NewSendRing(view, sq.cap(), attr.SigAll), sq)
	if rq.count == 0 {
		return nil
	}
	rview, err := prm.NewRQView(q.mem.at(0), rq.count, rq.stride)
	if err != nil {
		return err
	}
	q.rq.Open(rview, q.sq.dbrec.DBRec, false)
	return nil
}

func (q *queuePair) getUUAR() {
	if q.td != nil {
		q.sq.uuar = q.td.uuar
		return
	}
	q.prov.mu.Lock()
	q.sq.uuar = q.prov.uuars.get()
	q.prov.mu.Unlock()
}

func (q *queuePair) putUUAR() {
	if q.td != nil {
		return
	}
	q.prov.mu.Lock()
	q.prov.uuars.put(q.sq.uuar)
	q.prov.mu.Unlock()
}

// Number implements verbs.QPProvider.
func (q *queuePair) Number() uint32 { return q.qpn }

// PostSend implements verbs.QPProvider.
func (q *queuePair) PostSend(wr []verbs.SendWR) (n int, err error) {
	if race.Enabled {
		return q.postAlone(wr)
	}
	return q.sq.post(wr)
}

// Register implements verbs.DoorbellReporter.
func (q *queuePair) Register() verbs.Register {
	u := q.sq.uuar
	return verbs.Register{UARPage: u.uar.Index, UUAR: (u.base - prm.UUAR0) / prm.BFRegLen, BlueFlame: u.blueFlame,
		RegisterLock: u.locked, QueueLock: q.sq.locked}
}

// SendCounts implements verbs.DoorbellReporter.
func (q *queuePair) SendCounts() verbs.SendCounts { return q.sq.sent }

// PostRecv implements verbs.QPProvider.
func (q *queuePair) PostRecv(wr []verbs.RecvWR) (n int, err error) {
	if q.srq != nil || q.recvCQ == nil {
		return 0, opError("post receive", ucs.ErrInvalidParam)
	}
	n, err = q.rq.post(wr)
	if q.sq.doorbell == nil || n == 0 {
		return n, err
	}
	q.rq.storeFence()
	if q.State() == verbs.QPStateErr {
		err = errors.Join(err, q.flushRecvs())
	}
	return n, err
}

// flushRecvs makes a software device flush receives that were posted in ERR, because a post
// to a receive queue rings no doorbell. Hardware flushes them by itself.
func (q *queuePair) flushRecvs() error {
	return q.prov.hw.ModifyQP(q.qpn, &verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState)
}

// Modify implements verbs.QPProvider. A move to RESET empties the queues.
func (q *queuePair) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	if err := q.prov.hw.ModifyQP(q.qpn, attr, mask); err != nil {
		return err
	}
	if mask&verbs.QPMaskState != 0 && attr.State == verbs.QPStateReset {
		q.cleanCQs()
		q.sq.reset()
		q.rq.Reset()
	}
	return nil
}

func (q *queuePair) cleanCQs() {
	q.sendCQ.clean(q)
	if q.recvCQ != nil && q.recvCQ != q.sendCQ {
		q.recvCQ.clean(q)
	}
}

// State implements verbs.QPProvider.
func (q *queuePair) State() verbs.QPState { return q.prov.stateOf(q.qpn) }

// stateOf returns the state of a QP; ERR if the QP does not exist any more.
func (p *provider) stateOf(qpn uint32) verbs.QPState {
	s, err := p.hw.QueryQP(qpn)
	if err != nil {
		return verbs.QPStateErr
	}
	return s
}

// Close implements verbs.QPProvider.
func (q *queuePair) Close() error {
	p := q.prov
	if err := p.hw.DestroyQP(q.qpn); err != nil {
		return opError("destroy QP", err)
	}
	p.events.removeQP(q.qpn, q.v)
	q.cleanCQs() // before the user index is assigned to another QP
	p.users.remove(q.uidx)
	q.putUUAR()
	p.dbrecs.put(q.sq.dbrec)
	p.count(func(r *verbs.Resources) { r.QPs--; r.Bytes.QPs -= q.footprint() })
	return q.mem.free()
}
