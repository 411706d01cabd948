package softhca

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Under a model of time a device executes work requests as usual when the doorbell rings, or in a
// model of a network when they arrive. It reports to the model what it found at the doorbell: the
// register, whether the store contained a work request, and the work requests in the queue. It
// withholds completions until the model releases them. Only one goroutine uses the device, so
// nothing here has a lock.

// timedPage is the doorbell of a UAR page under a model.
type timedPage struct {
	*uarPage
	page *timing.Page
}

// Ring implements prm.Doorbell. It returns at the virtual time when the ringing thread has finished
// the post; other threads may run before that.
func (u *timedPage) Ring(off uint32, first8 uint64) {
	_, qpn := prm.SplitCtrlWord(first8)
	qp := u.hca.qps.find(qpn)
	if off == prm.CQArm || qp == nil {
		u.uarPage.Ring(off, first8)
		return
	}
	wqes, valid := qp.timed.posted()
	blueFlame := u.clearRegister(off)
	if !valid || len(wqes) == 0 || !qp.timed.travels() {
		qp.timed.horizon = qp.timed.seen
		u.uarPage.Ring(off, first8)
		u.hca.driveAll()
	}
	if len(wqes) > 0 {
		qp.timed.model.Post(off&^(prm.BFRegLen-1), blueFlame, wqes)
	}
}

// clearRegister clears the buffer at an offset of the page, as the NIC does, and reports whether it
// contained more than a doorbell. No work request is zero after its first eight bytes: it contains
// an address or a length.
func (u *timedPage) clearRegister(off uint32) (blueFlame bool) {
	buf := u.block.Bytes()[off : off+prm.BFBufLen]
	for _, b := range buf[8:] {
		if b != 0 {
			blueFlame = true
			break
		}
	}
	clear(buf)
	return blueFlame
}

// driveAll drives the device until no work remains: there is no engine.
func (h *hca) driveAll() {
	for h.ctl.attention.Load()&attnWork != 0 {
		h.Drive()
	}
}

// timedQP is the additional state of a QP under a model.
type timedQP struct {
	qp     *queuePair
	model  *timing.QP
	seen   uint16    // producer index up to which posted has reported work requests
	wqe    prm.WQE   // scratch
	held   []prm.CQE // of work requests that were executed and not released yet
	due    []uint16  // work requests that were released and not executed yet: they wait for the peer
	failed bool      // in ERR: completions are not withheld

	horizon uint16      // producer index up to which work requests may be executed: they have arrived
	again   timing.Time // time after which to retry a work request that could not be executed
}

// travels reports whether work requests are executed when they arrive.
func (t *timedQP) travels() bool { return t != nil && t.qp.hca.cfg.Timing.Travels() }

// limit is the producer index up to which the QP may execute.
func (qp *queuePair) limit() uint16 {
	if t := qp.timed; t != nil {
		return t.horizon
	}
	return qp.dbrec.Send()
}

// clock is nanotime, or that of the model.
func (h *hca) clock() int64 {
	if m := h.cfg.Timing; m != nil {
		return int64(m.Clock()/timing.Nanosecond) + 1
	}
	return nanotime()
}

// Arrive implements timing.Target.
func (t *timedQP) Arrive(index uint16, blocks int) (again timing.Time, done bool) {
	qp := t.qp
	end := index + uint16(blocks)
	if !reached(t.horizon, end) {
		t.horizon = end
	}
	t.again = 0
	qp.runOrSchedule()
	qp.hca.driveAll()
	if t.failed || !qp.is(verbs.QPStateRTS) || reached(qp.req.acked, end) {
		return 0, true
	}
	return max(t.again, timing.Nanosecond), false
}

// Ready implements timing.Target. A send with limited RNR retries is checked when it is executed.
func (t *timedQP) Ready(index uint16, blocks int) (again timing.Time, ready bool) {
	qp := t.qp
	if _, syn := prm.DecodeWQE(&qp.sq, index, index+uint16(blocks), &t.wqe); syn != prm.SyndromeOK {
		return 0, true
	}
	to, q := t.receiver()
	if q == nil || oneSided(t.wqe.Op) || qp.req.rnrLeft != verbs.RNRForever || q.dbrec.Recv() != q.consumed {
		return 0, true
	}
	return timing.Time(rnrDelay(to.attr.MinRNRTimer)) * timing.Nanosecond, false
}

// receiver returns the QP that the work request in t.wqe goes to, and its receive queue; nil if the
// work request needs no receive.
func (t *timedQP) receiver() (*queuePair, *recvQueue) {
	h := t.qp.hca
	to := h.qps.find(t.qp.attr.DestQPN)
	switch {
	case to == nil || t.qp.service == verbs.QPTypeUD:
		return nil, nil
	case t.qp.service == verbs.QPTypeXRCSend:
		return to, h.xrcSRQs.find(t.wqe.SRQN)
	}
	return to, to.rq
}

// reached reports whether index i of a send queue has reached j or is beyond it.
func reached(i, j uint16) bool { return int16(i-j) >= 0 }

// attachModel puts the QP under the model of the device, if there is one.
func (qp *queuePair) attachModel(p prm.QPParams) error {
	m := qp.hca.cfg.Timing
	if m == nil {
		return nil
	}
	page, ok := p.UAR.Doorbell.(*timedPage)
	if !ok {
		return ucs.ErrInvalidParam
	}
	t := &timedQP{qp: qp}
	t.model = m.NewQP(timing.QPConfig{NIC: qp.hca.cfg.NIC, Page: page.page, Sink: t, CQ: qp.sendCQ.timed.model,
		QueueLocked: p.QueueLocked, RegisterLocked: p.RegisterLocked})
	qp.timed = t
	return nil
}

// reset is the part of queuePair.reset for the model.
func (t *timedQP) reset() { t.seen, t.horizon, t.held, t.due, t.failed = 0, 0, nil, nil, false }

// posted returns the new work requests of the queue. valid is false if one cannot be decoded: the
// list ends before it, and the later ones will be flushed, which takes no time.
func (t *timedQP) posted() (list []timing.WQE, valid bool) {
	pi := t.qp.dbrec.Send()
	ok := t.qp.is(verbs.QPStateRTS)
	for ok && t.seen != pi {
		bbs, syn := prm.DecodeWQE(&t.qp.sq, t.seen, pi, &t.wqe)
		if ok = syn == prm.SyndromeOK; ok {
			list = append(list, t.describe(bbs))
			t.seen += uint16(bbs)
		}
	}
	valid = t.seen == pi
	t.seen = pi
	return list, valid
}

// describe returns the work request in t.wqe as the model needs it.
func (t *timedQP) describe(bbs int) timing.WQE {
	w := &t.wqe
	d := timing.WQE{Index: w.Index, Blocks: bbs, Signaled: w.Flags.Signaled(), Len: w.Len, To: t.destNIC()}
	if localNeed(w.Op) != 0 {
		d.Kind = timing.Fetch
		return d
	}
	for _, s := range w.SGEs() {
		d.Payload = append(d.Payload, timing.Span{Addr: s.Addr, Len: s.Length})
	}
	return d
}

// destNIC returns the NIC that the work request in t.wqe goes to; nil if there is none.
func (t *timedQP) destNIC() *timing.NIC {
	h, qpn := t.qp.hca, t.qp.attr.DestQPN
	switch t.qp.service {
	case verbs.QPTypeUD:
		qpn = t.wqe.AV.QPN
	case verbs.QPTypeXRCSend:
		q := h.xrcSRQs.find(t.wqe.SRQN)
		if q == nil || h.cfg.NIC != nil {
			return h.cfg.NIC
		}
		return q.xrc.cq.timed.model.NIC()
	}
	if peer := h.qps.find(qpn); peer != nil && peer.timed != nil {
		return peer.timed.model.NIC()
	}
	return nil
}

// holdBack stores a completion until it is released. It returns false if the CQ has failed.
func (t *timedQP) holdBack(e *prm.CQE) bool {
	if len(t.due) > 0 && t.due[0] == e.WQECounter {
		t.due = t.due[1:]
		return t.push(e)
	}
	if t.failed {
		return t.push(e)
	}
	t.held = append(t.held, *e)
	return true
}

// Complete implements timing.Sink.
func (t *timedQP) Complete(index uint16) {
	switch {
	case t.failed:
	case len(t.held) > 0 && t.held[0].WQECounter == index:
		e := t.held[0]
		t.held = t.held[1:]
		t.push(&e)
	default:
		t.due = append(t.due, index)
	}
}

// fail releases all completions. Later ones, of failed work requests, are not withheld.
func (t *timedQP) fail() {
	t.failed = true
	for i := range t.held {
		t.push(&t.held[i])
	}
	t.held, t.due = nil, nil
}

func (t *timedQP) push(e *prm.CQE) bool {
	if t.qp.sendCQ.push(e) {
		return true
	}
	t.qp.failOverrun()
	return false
}

// timedCQ replaces the device as the Pollable of one CQ.
type timedCQ struct {
	cq        *compQueue
	model     *timing.CQ
	attention uint32 // never 0: the model sees each poll
	ci, total uint32
}

func newTimedCQ(cq *compQueue, locked bool) *timedCQ {
	t := &timedCQ{cq: cq, attention: 1}
	t.model = cq.hca.cfg.Timing.NewCQ(locked, t.consumed)
	return t
}

// consumed returns the total number of completions that the driver has consumed.
func (t *timedCQ) consumed() uint32 {
	ci := t.cq.dbrec.CI()
	t.total += (ci - t.ci) & ciMask
	t.ci = ci
	return t.total
}

// Attention implements prm.Pollable.
func (t *timedCQ) Attention() *uint32 { return &t.attention }

// Drive implements prm.Pollable: a poll begins.
func (t *timedCQ) Drive() {
	if h := t.cq.hca; !h.cfg.Timing.Travels() && h.ctl.attention.Load()&attnTimer != 0 {
		h.Drive()
	}
	t.cq.hca.driveAll()
	t.model.Poll()
}

// arrived reports a completion of a receive to the model, which does not create these.
func (t *timedCQ) arrived(e *prm.CQE) {
	switch e.Opcode {
	case prm.CQEReq, prm.CQEReqErr:
	default:
		t.model.Received()
	}
}

// Poller implements prm.QueuePollable.
func (h *hca) Poller(cqn uint32) prm.Pollable {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cq := h.cqs.get(cqn); cq != nil && cq.timed != nil {
		return cq.timed
	}
	return nil
}

var _ prm.QueuePollable = (*hca)(nil)
