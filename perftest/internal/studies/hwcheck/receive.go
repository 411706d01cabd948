package hwcheck

import (
	"errors"
	"fmt"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func (r *rig) send() (string, error) {
	for _, n := range []int{1, 8, 1024, 10_000} {
		if err := r.sendTo(r.a, r.b.PostRecv, verbs.SendWR{}, n, 0); err != nil {
			return "", fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return "4 lengths, with immediate", nil
}

// pair creates two RC QPs that are connected with each other; the second receives from an SRQ.
func (r *rig) pair(undo *cleanup.Stack, srq *verbs.SRQ) (a *verbs.QP, err error) {
	if a, err = r.newQP(verbs.QPTypeRC, r.cq); err != nil {
		return nil, err
	}
	undo.Add(a.Close)
	b, err := r.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: r.cq, RecvCQ: r.cq, SRQ: srq, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
	if err != nil {
		return nil, err
	}
	undo.Add(b.Close)
	return a, errors.Join(r.connect(a, b.Number()), r.connect(b, a.Number()))
}

// pairOnSRQ creates an SRQ of 31 receives of sges SGEs each, and two connected QPs that use it. It returns the first
// QP.
func (r *rig) pairOnSRQ(undo *cleanup.Stack, sges int) (srq *verbs.SRQ, a *verbs.QP, err error) {
	if srq, err = r.pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 31, MaxSGE: sges}); err != nil {
		return nil, nil, err
	}
	undo.Add(srq.Close)
	a, err = r.pair(undo, srq)
	return srq, a, err
}

func (r *rig) sendSRQ() (_ string, err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	srq, a, err := r.pairOnSRQ(&undo, 2)
	if err != nil {
		return "", err
	}
	const messages = 100 // several times around the SRQ
	for i := range messages {
		if err := r.sendTo(a, srq.PostRecv, verbs.SendWR{}, 8+i, 0); err != nil {
			return "", fmt.Errorf("message %d: %w", i, err)
		}
	}
	return fmt.Sprintf("SRQ %#x, %d messages", srq.Number(), messages), nil
}

// asyncEvent waits for the event that an SRQ has fewer receives than its limit.
func (r *rig) asyncEvent() (_ string, err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	srq, a, err := r.pairOnSRQ(&undo, 1)
	if err != nil {
		return "", err
	}
	for range 2 {
		if _, err := srq.PostRecv([]verbs.RecvWR{{ID: 1, SGList: []verbs.SGE{r.sge(remoteAt, 8)}}}); err != nil {
			return "", err
		}
	}
	if err := srq.Modify(verbs.SRQAttr{Limit: 2}, verbs.SRQMaskLimit); err != nil {
		return "", err
	}
	r.expect(remoteAt, 0, 8)
	if err := r.post(a, verbs.SendWR{ID: r.id(), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{r.sge(0, 8)}}); err != nil {
		return "", err
	}
	if _, err := r.complete(2); err != nil {
		return "", err
	}
	ev, err := r.nextAsync()
	if err != nil {
		return "", err
	}
	if ev.Type != verbs.EventSRQLimitReached || ev.SRQ != srq {
		return "", fmt.Errorf("event of type %d, want %d, of the SRQ", ev.Type, verbs.EventSRQLimitReached)
	}
	return "the limit of an SRQ", nil
}

// nextAsync waits for an asynchronous event. Its goroutine returns when the context is closed, at the latest.
func (r *rig) nextAsync() (verbs.AsyncEvent, error) {
	type result struct {
		ev  verbs.AsyncEvent
		err error
	}
	done := make(chan result, 1)
	go func() {
		ev, err := r.ctx.NextAsyncEvent()
		done <- result{ev, err}
	}()
	select {
	case res := <-done:
		return res.ev, res.err
	case <-time.After(r.cfg.Timeout):
		return verbs.AsyncEvent{}, fmt.Errorf("no event within %v", r.cfg.Timeout)
	}
}

// threadDomains posts through registers of two domains that share a page.
func (r *rig) threadDomains() (_ string, err error) {
	if !r.ctx.HasTD() {
		return "", fmt.Errorf("thread domains: %w", ucs.ErrUnsupported)
	}
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	var pages []uint32
	for i := range 2 {
		td, err := r.ctx.AllocTD(verbs.TDInitAttr{Sharing: 2})
		if err != nil {
			return "", err
		}
		undo.Add(td.Close)
		qp, err := r.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: r.cq, RecvCQ: r.cq, TD: td,
			Cap: verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1, MaxInline: inlineLen}})
		if err != nil {
			return "", err
		}
		undo.Add(qp.Close)
		peer, err := r.newQP(verbs.QPTypeRC, r.cq)
		if err != nil {
			return "", err
		}
		undo.Add(peer.Close)
		if err := errors.Join(r.connect(qp, peer.Number()), r.connect(peer, qp.Number())); err != nil {
			return "", err
		}
		off := 30_000 + gap*i
		r.fill(off, 32)
		r.expect(remoteAt+off, off, 32)
		if err := r.post(qp, r.write(off, 32, verbs.SendInline)); err != nil {
			return "", err
		}
		if _, err := r.complete(1); err != nil {
			return "", err
		}
		reg, _ := qp.Register()
		pages = append(pages, reg.UARPage)
	}
	return fmt.Sprintf("UAR pages %d", pages), r.compare()
}

// grhLen is the length of the header before a datagram in its receive.
const grhLen = 40

func (r *rig) datagrams() (_ string, err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	const st = verbs.QPMaskState
	var qps [2]*verbs.QP
	for i := range qps {
		if qps[i], err = r.newQP(verbs.QPTypeUD, r.cq); err != nil {
			return "", err
		}
		undo.Add(qps[i].Close)
		for _, m := range []struct {
			attr verbs.QPAttr
			mask verbs.QPAttrMask
		}{
			{verbs.QPAttr{State: verbs.QPStateInit, Port: r.cfg.Port, QKey: qkey}, st | verbs.QPMaskPort | verbs.QPMaskPKeyIndex | verbs.QPMaskQKey},
			{verbs.QPAttr{State: verbs.QPStateRTR}, st},
			{verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: 1}, st | verbs.QPMaskSQPSN},
		} {
			if err := qps[i].Modify(m.attr, m.mask); err != nil {
				return "", err
			}
		}
	}
	ah, err := r.pd.CreateAH(r.path)
	if err != nil {
		return "", err
	}
	undo.Add(ah.Close)
	for _, n := range []int{1, 64, 1000} {
		wr := verbs.SendWR{AH: ah, RemoteQPN: qps[1].Number(), RemoteQKey: qkey}
		if err := r.sendTo(qps[0], qps[1].PostRecv, wr, n, grhLen); err != nil {
			return "", fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return "3 lengths", nil
}

func (r *rig) xrc() (_ string, err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	domain, err := r.ctx.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
	if err != nil {
		return "", err
	}
	undo.Add(domain.Close)
	srq, err := r.pd.CreateSRQ(verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, XRCD: domain, CQ: r.cq, MaxWR: 31, MaxSGE: 2})
	if err != nil {
		return "", err
	}
	undo.Add(srq.Close)
	target, err := domain.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
	if err != nil {
		return "", err
	}
	undo.Add(target.Close)
	initiator, err := r.newInitiator()
	if err != nil {
		return "", err
	}
	undo.Add(initiator.Close)
	if err := errors.Join(r.connect(target, initiator.Number()), r.connect(initiator, target.Number())); err != nil {
		return "", err
	}
	if err := r.sendTo(initiator, srq.PostRecv, verbs.SendWR{SRQN: srq.Number()}, 500, 0); err != nil {
		return "", err
	}
	return fmt.Sprintf("target %#x, SRQ %#x", target.Number(), srq.Number()), nil
}

func (r *rig) newInitiator() (*verbs.QP, error) {
	return r.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCSend, SendCQ: r.cq, Cap: verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1}})
}

// refused writes with a key that does not exist, and then to the QP, which is in ERR.
func (r *rig) refused() (string, error) {
	bad := r.write(0, 8, 0)
	bad.RKey ^= 0xff
	if err := r.post(r.a, bad); err != nil {
		return "", err
	}
	list, err := r.wait(r.cq, 1)
	if err != nil {
		return "", err
	}
	if list[0].Status != verbs.WCRemAccessErr {
		return "", fmt.Errorf("status %v, want %v", list[0].Status.Err(), verbs.WCRemAccessErr.Err())
	}
	vendor := list[0].VendorErr
	if err := r.post(r.a, r.write(0, 8, 0)); err != nil {
		return "", err
	}
	if list, err = r.wait(r.cq, 1); err != nil {
		return "", err
	}
	if list[0].Status != verbs.WCWRFlushErr || r.a.State() != verbs.QPStateErr {
		return "", fmt.Errorf("status %v in state %v, want %v in %v", list[0].Status.Err(), r.a.State(), verbs.WCWRFlushErr.Err(), verbs.QPStateErr)
	}
	return fmt.Sprintf("vendor error %#x, and the next work request was flushed", vendor), r.compare()
}
