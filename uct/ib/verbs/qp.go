package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
)

// QP is a queue pair. Several goroutines may call its methods, except that only one
// goroutine at a time may post to a QP in a thread domain. Post calls do not block.
// They allocate only to return an error other than ErrNoResource.
type QP struct {
	p      QPProvider
	sendOK atomic.Bool // RTS, SQD, SQE, ERR
	recvOK atomic.Bool // all but RESET

	ctx    *Context
	pd     *PD // nil for an XRC target
	typ    QPType
	cap    QPCap
	sendCQ *CQ
	recvCQ *CQ
	srq    *SRQ
	up     parents
	life   lifetime

	mu   sync.Mutex // protects attr and user; serializes Modify
	attr QPAttr
	user any
}

// SetUserContext stores a value of the user, like qp_context of libibverbs. The handler of an event can read it from the
// QP of the event.
func (qp *QP) SetUserContext(v any) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.user = v
}

// UserContext returns the value of the last SetUserContext, or nil.
func (qp *QP) UserContext() any {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	return qp.user
}

// CreateQP creates a queue pair in RESET, of any type except XRC target (see
// XRCD.CreateQP). The SRQ may be of another PD of the context: receives posted to it use
// the keys of its PD (IBTA volume 1, 10.2.9).
//
// Errors: ErrInvalidParam for an unknown type, a missing CQ, an XRC initiator with a
// receive queue, or parents of another context; ErrTooLong for capabilities above
// DeviceAttr; ErrUnsupported for an XRC initiator if the device has no XRC.
func (pd *PD) CreateQP(attr QPInitAttr) (*QP, error) {
	if err := pd.checkQP(&attr); err != nil {
		return nil, err
	}
	qp := &QP{
		ctx: pd.ctx, pd: pd, typ: attr.Type, sendCQ: attr.SendCQ, recvCQ: attr.RecvCQ, srq: attr.SRQ,
		up: parents{&pd.life, &attr.SendCQ.life},
	}
	if attr.RecvCQ != nil {
		qp.up = append(qp.up, &attr.RecvCQ.life)
	}
	if attr.SRQ != nil {
		qp.up = append(qp.up, &attr.SRQ.life)
	}
	if attr.TD != nil {
		qp.up = append(qp.up, &attr.TD.life)
	}
	if err := qp.up.adopt("create QP"); err != nil {
		return nil, err
	}
	p, c, err := pd.ctx.p.CreateQP(qp, attr)
	if err != nil {
		qp.up.release()
		return nil, err
	}
	qp.p, qp.cap = p, c
	return qp, nil
}

// checkQP checks the parents and the capabilities.
func (pd *PD) checkQP(a *QPInitAttr) error {
	const op = "create QP"
	if err := pd.checkQPParents(a); err != nil {
		return err
	}
	dev, c := &pd.ctx.attr, &a.Cap
	recvWR, recvSGE := c.MaxRecvWR, c.MaxRecvSGE
	if a.SRQ != nil || a.Type == QPTypeXRCSend {
		recvWR, recvSGE = 0, 0
	}
	for _, l := range []struct {
		what     string
		n, limit int
	}{
		{"max_send_wr", c.MaxSendWR, dev.MaxQPWR}, {"max_recv_wr", recvWR, dev.MaxQPWR},
		{"max_send_sge", c.MaxSendSGE, dev.MaxSGE}, {"max_recv_sge", recvSGE, dev.MaxSGE},
		{"max_inline", c.MaxInline, dev.MaxInline},
	} {
		if l.n < 0 {
			return invalid(op, "%s %d", l.what, l.n)
		}
		if l.n > l.limit {
			return tooLong(op, l.what, l.n, l.limit)
		}
	}
	return nil
}

// checkQPParents checks the type, and that the parents that it requires are set.
func (pd *PD) checkQPParents(a *QPInitAttr) error {
	const op = "create QP"
	sendOnly := a.Type == QPTypeXRCSend
	switch {
	case a.Type != QPTypeRC && a.Type != QPTypeUD && !sendOnly:
		return invalid(op, "type %v", a.Type)
	case sendOnly && (a.RecvCQ != nil || a.SRQ != nil):
		return invalid(op, "%v with a receive CQ or SRQ", a.Type)
	case a.SendCQ == nil || a.RecvCQ == nil && !sendOnly:
		return invalid(op, "no send CQ or no receive CQ")
	case a.SendCQ.ctx != pd.ctx || a.RecvCQ != nil && a.RecvCQ.ctx != pd.ctx:
		return invalid(op, "CQ of another context")
	case a.SRQ != nil && a.SRQ.pd.ctx != pd.ctx:
		return invalid(op, "SRQ of another context")
	case a.SRQ != nil && a.SRQ.typ != SRQTypeBasic:
		return invalid(op, "an SRQ of type %v", a.SRQ.typ)
	case a.TD != nil && a.TD.ctx != pd.ctx:
		return invalid(op, "thread domain of another context")
	}
	return nil
}

// PD returns the protection domain of the QP; nil for an XRC target.
func (qp *QP) PD() *PD { return qp.pd }

// SendCQ returns the CQ of send work requests; nil for an XRC target.
func (qp *QP) SendCQ() *CQ { return qp.sendCQ }

// RecvCQ returns the CQ of receives; nil for the XRC types.
func (qp *QP) RecvCQ() *CQ { return qp.recvCQ }

// SRQ returns the shared receive queue, or nil.
func (qp *QP) SRQ() *SRQ { return qp.srq }

// Number returns the QPN, of 24 bits.
func (qp *QP) Number() uint32 { return qp.p.Number() }

// Type returns the type of the QP.
func (qp *QP) Type() QPType { return qp.typ }

// Cap returns the capabilities of the QP, which may be larger than those requested.
func (qp *QP) Cap() QPCap { return qp.cap }

// State returns the current state. The device moves a QP to ERR when a work request fails.
func (qp *QP) State() QPState { return qp.p.State() }

// Query returns the attributes that Modify set last, the current state and the
// capabilities.
func (qp *QP) Query() QPAttr {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	a := qp.attr
	a.State = qp.p.State()
	a.CurState = a.State
	a.Cap = qp.cap
	return a
}

// Modify sets the attributes in mask. mask must contain the attributes that IBTA
// volume 1, 10.3 requires for the transition, and no others than it allows (see
// transitions in state.go). A move to RESET drops all work requests and completions. A
// move to ERR completes all work requests with WCWRFlushErr. Modify may block until the
// device has stopped work in progress.
//
// Errors: ErrInvalidState for a transition that is not defined, or a CurState that
// differs from the state; ErrInvalidParam for missing, extra or invalid attributes,
// with their names in the text; others from the device.
func (qp *QP) Modify(attr QPAttr, mask QPAttrMask) error {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	from := qp.p.State()
	to := from
	if mask&QPMaskState != 0 {
		to = attr.State
	}
	if err := qp.check(from, to, &attr, mask); err != nil {
		return &ucs.OpError{TL: "verbs", Dev: qp.ctx.dev.name, Op: fmt.Sprintf("modify qp %#x to %v", qp.Number(), to), Err: err}
	}
	if to == QPStateReset {
		qp.setState(to)
	}
	if err := qp.p.Modify(&attr, mask); err != nil {
		qp.setState(qp.p.State())
		return &ucs.OpError{TL: "verbs", Dev: qp.ctx.dev.name, Op: fmt.Sprintf("modify qp %#x to %v", qp.Number(), to), Err: err}
	}
	if to == QPStateReset {
		qp.attr = QPAttr{}
	}
	qp.attr.Merge(&attr, mask)
	qp.setState(to)
	return nil
}

func (qp *QP) check(from, to QPState, attr *QPAttr, mask QPAttrMask) error {
	if mask&QPMaskCurState != 0 && attr.CurState != from {
		return fmt.Errorf("current state is %v, not %v: %w", from, attr.CurState, ucs.ErrInvalidState)
	}
	if err := checkMask(qp.typ, from, to, mask); err != nil {
		return err
	}
	if err := qp.ctx.checkValues(attr, mask); err != nil {
		return err
	}
	if mask&QPMaskAV != 0 {
		return qp.ctx.checkAddress("path", &attr.AH)
	}
	return nil
}

// setState permits or rejects post calls according to state s.
func (qp *QP) setState(s QPState) {
	qp.sendOK.Store(s >= QPStateRTS)
	qp.recvOK.Store(s != QPStateReset)
}

// PostSend posts work requests in order and returns the number of posted ones. If n <
// len(wr), err is the error of wr[n], and PostSend has posted none after it:
//   - ErrNoResource, not wrapped: the queue is full; poll its CQ for signaled work.
//   - ErrInvalidState: the QP is in RESET, INIT or RTR. In ERR posting is
//     allowed, and completes with WCWRFlushErr.
//   - ErrTooLong: more inline bytes than QPCap.MaxInline, or an SGE of 2 GiB.
//   - ErrInvalidParam: an XRC target, an opcode that the type of QP does not have, inline
//     with a read or atomic, too many SGEs, an atomic without exactly one, a UD work
//     request without AH.
//
// The device detects all other errors of a work request and reports them in its
// completion, even if the work request is not signaled.
func (qp *QP) PostSend(wr []SendWR) (n int, err error) {
	if !qp.sendOK.Load() {
		return 0, qp.refuse("post send")
	}
	return qp.p.PostSend(wr)
}

// PostRecv posts receives and returns the number of posted ones, as PostSend. Errors:
// ErrNoResource, not wrapped, if the queue is full; ErrInvalidState in RESET;
// ErrInvalidParam for too many SGEs, or a QP with an SRQ or of an XRC type; ErrTooLong
// for an SGE of 2 GiB.
func (qp *QP) PostRecv(wr []RecvWR) (n int, err error) {
	if !qp.recvOK.Load() {
		return 0, qp.refuse("post receive")
	}
	return qp.p.PostRecv(wr)
}

//go:noinline
func (qp *QP) refuse(op string) error {
	return opError(op, fmt.Errorf("qp %#x is in %v: %w", qp.Number(), qp.State(), ucs.ErrInvalidState))
}

// Provider returns the provider's object of the QP.
func (qp *QP) Provider() QPProvider { return qp.p }

// Close destroys the QP. An XRC target is destroyed with the last QP that refers to it.
// Outstanding work requests do not complete. Close removes completions of the QP from its
// CQs, and posts receives of an SRQ among them again. The caller must not post during
// Close. Idempotent.
func (qp *QP) Close() error {
	return qp.life.close("close QP", func() error {
		qp.sendOK.Store(false)
		qp.recvOK.Store(false)
		if err := qp.p.Close(); err != nil {
			return err
		}
		qp.up.release()
		return nil
	})
}
