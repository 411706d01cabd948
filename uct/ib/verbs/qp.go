package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
)

// QP is a queue pair. Post calls are safe for several goroutines unless the QP is
// in a thread domain; the other methods always are. Post calls neither block nor
// allocate, unless they return an error other than ErrNoResource.
type QP struct {
	p      QPProvider
	sendOK atomic.Bool // RTS, SQD, SQE, ERR
	recvOK atomic.Bool // all but RESET

	ctx    *Context
	pd     *PD // nil of an XRC target
	typ    QPType
	cap    QPCap
	sendCQ *CQ
	recvCQ *CQ
	srq    *SRQ
	up     parents
	life   lifetime

	mu   sync.Mutex // Modify, Query and user
	attr QPAttr
	user any
}

// SetUserContext stores a value of the user, as the qp_context of libibverbs: with an event comes its
// QP, and so the value.
func (qp *QP) SetUserContext(v any) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.user = v
}

// UserContext returns what SetUserContext has stored, or nil.
func (qp *QP) UserContext() any {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	return qp.user
}

// CreateQP makes a queue pair in RESET, of any type but that of XRC targets: see
// XRCD.CreateQP. ErrInvalidParam for an unknown type, a missing CQ, an initiator with a
// receive side, or parents of another context; ErrTooLong for capabilities beyond
// DeviceAttr; ErrUnsupported for an XRC initiator where there is no XRC. An SRQ may be of
// another domain of the context: receives posted to it use the keys of its domain (IBTA
// volume 1, 10.2.9).
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

// checkQPParents checks the type, and that it has the parents that it needs.
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

// PD is the protection domain of the QP; nil of an XRC target.
func (qp *QP) PD() *PD { return qp.pd }

// SendCQ is where send work requests complete; nil of an XRC target.
func (qp *QP) SendCQ() *CQ { return qp.sendCQ }

// RecvCQ is where receives complete; nil with XRC.
func (qp *QP) RecvCQ() *CQ { return qp.recvCQ }

// SRQ is the shared receive queue, or nil.
func (qp *QP) SRQ() *SRQ { return qp.srq }

// Number is the QPN: 24 bits.
func (qp *QP) Number() uint32 { return qp.p.Number() }

// Type is the service.
func (qp *QP) Type() QPType { return qp.typ }

// Cap are the depths that the QP really has.
func (qp *QP) Cap() QPCap { return qp.cap }

// State is the current state; the device moves a faulty QP to ERR by itself.
func (qp *QP) State() QPState { return qp.p.State() }

// Query returns the attributes as they were last set, the current state and the
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

// Modify sets the attributes in mask. A transition takes the attributes that
// IBTA volume 1, 10.3 requires for it, and no others than it allows; transitions
// in state.go has them. A move to RESET drops all work requests and completions;
// a move to ERR flushes them, each with a WCWRFlushErr completion. It may block
// while the device lets go of work in progress.
//
// Errors: ErrInvalidState for a transition that there is not, or a CurState that
// is not the state; ErrInvalidParam for missing, extra or bad attributes, named
// in the text; others from the device.
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

// setState opens and closes the post calls.
func (qp *QP) setState(s QPState) {
	qp.sendOK.Store(s >= QPStateRTS)
	qp.recvOK.Store(s != QPStateReset)
}

// PostSend posts work requests in order. n is how many were posted; err is why
// wr[n] was not, and those after it neither:
//   - ErrNoResource, bare: the queue is full; poll its CQ for signaled work.
//   - ErrInvalidState: the QP is in RESET, INIT or RTR. In ERR posting is
//     allowed, and completes with WCWRFlushErr.
//   - ErrTooLong: more inline bytes than QPCap.MaxInline, or an SGE of 2 GiB.
//   - ErrInvalidParam: an XRC target, an opcode that the type of QP does not have, inline
//     with a read or atomic, too many SGEs, an atomic without exactly one, a UD work
//     request without AH.
//
// Everything else that is wrong with a work request is found by the device and
// reported by its completion, whether it is signaled or not.
func (qp *QP) PostSend(wr []SendWR) (n int, err error) {
	if !qp.sendOK.Load() {
		return 0, qp.refuse("post send")
	}
	return qp.p.PostSend(wr)
}

// PostRecv posts receives, as PostSend: ErrNoResource (bare) when the queue is
// full, ErrInvalidState in RESET, ErrInvalidParam for too many SGEs or a QP with
// an SRQ or of XRC, ErrTooLong for an SGE of 2 GiB.
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

// Provider returns the provider's half.
func (qp *QP) Provider() QPProvider { return qp.p }

// Close destroys the QP; an XRC target when it was the last QP that stood for it. Its
// outstanding work requests get no completions, and those that wait in a CQ are removed;
// receives of an SRQ among them are posted again. Nobody may post meanwhile. Idempotent.
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
