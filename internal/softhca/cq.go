package softhca

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/spin"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// compQueue is the device's side of a CQ: the producer.
type compQueue struct {
	hca   *hca
	cqn   uint32
	view  prm.CQView
	dbrec prm.DBRec
	sink  prm.CQSink
	users int // QPs; under hca.mu

	mu      spin.Mutex
	pi      uint32
	ciSeen  uint32 // last consumer index read
	armed   armKind
	overrun bool

	timed *timedCQ // nil without a model of time
}

// armKind is the type of completion that raises the next event.
type armKind uint8

const (
	armNone armKind = iota
	armSolicited
	armAny
)

// ciMask is the width of a consumer index.
const ciMask = 1<<24 - 1

// CreateCQ implements prm.Hardware.
func (h *hca) CreateCQ(p prm.CQParams) (uint32, error) {
	view, err := prm.NewCQView(p.Buf, p.Count)
	if err != nil || p.DBRec == (prm.DBRec{}) {
		return 0, ucs.ErrInvalidParam
	}
	cq := &compQueue{hca: h, view: view, dbrec: p.DBRec, sink: p.Sink}
	if h.cfg.Timing != nil {
		cq.timed = newTimedCQ(cq, p.Locked)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	cq.cqn, err = h.cqs.add(cq)
	return cq.cqn, err
}

// DestroyCQ implements prm.Hardware.
func (h *hca) DestroyCQ(cqn uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	cq := h.cqs.get(cqn)
	if cq == nil {
		return ucs.ErrInvalidParam
	}
	if cq.users > 0 {
		return ucs.ErrBusy
	}
	h.cqs.remove(cqn)
	return nil
}

// push writes a completion. It returns false if the queue is full: the CQ is then in error and
// accepts no more, and the QPs that produce for it go to ERR (IBTA volume 1, 10.10.2.3).
func (cq *compQueue) push(e *prm.CQE) bool {
	cq.mu.Lock()
	if cq.pi-cq.ciSeen >= cq.view.Count() && !cq.hasRoom() {
		return cq.failFull()
	}
	cq.view.Slot(cq.pi).Write(e, cq.view.Owner(cq.pi))
	cq.pi++
	if cq.timed != nil {
		cq.timed.arrived(e)
	}
	cq.unlockAndRaise(e.Solicited || e.IsError())
	return true
}

// pushSent is push for a work request of qp that has succeeded and has read n bytes.
func (cq *compQueue) pushSent(qp *queuePair, op prm.Opcode, index uint16, n uint32) bool {
	cq.mu.Lock()
	if cq.pi-cq.ciSeen >= cq.view.Count() && !cq.hasRoom() {
		return cq.failFull()
	}
	cq.view.Slot(cq.pi).WriteSent(op, index, qp.qpn, qp.uidx, n, cq.view.Owner(cq.pi))
	cq.pi++
	if cq.armed != armNone {
		cq.unlockAndRaise(false)
		return true
	}
	cq.mu.Release()
	return true
}

// failFull puts the full queue into the error state and releases the lock. It returns false.
func (cq *compQueue) failFull() bool {
	first := !cq.overrun
	cq.overrun = true
	cq.mu.Release()
	if first {
		cq.hca.raise(verbs.EventCQErr, cq.cqn)
	}
	return false
}

// unlockAndRaise unlocks the queue, and raises an event if the queue is armed for it.
func (cq *compQueue) unlockAndRaise(solicited bool) {
	fire := cq.armed == armAny || cq.armed == armSolicited && solicited
	if fire {
		cq.armed = armNone
	}
	cq.mu.Release()
	if fire && cq.sink != nil {
		cq.sink.CompletionEvent()
	}
}

// hasRoom reads the consumer index again. The load acquires: the driver has read the
// entries that it released. After an overrun there is no room: ciSeen does not change
// any more, so that each push calls hasRoom.
func (cq *compQueue) hasRoom() bool {
	if cq.overrun {
		return false
	}
	cq.ciSeen = cq.pi - (cq.pi-cq.dbrec.CI())&ciMask
	return cq.pi-cq.ciSeen < cq.view.Count()
}

// arm handles the word of a CQ doorbell: the next completion, or one at or after the
// consumer index in word, raises an event.
func (cq *compQueue) arm(word uint32) {
	_, solicitedOnly, ci := prm.SplitArmWord(word)
	kind := armAny
	if solicitedOnly {
		kind = armSolicited
	}
	cq.mu.Lock()
	fire := cq.hasCompletion(ci, kind)
	cq.armed = kind
	if fire {
		cq.armed = armNone
	}
	cq.mu.Release()
	if fire && cq.sink != nil {
		cq.sink.CompletionEvent()
	}
}

// hasCompletion reports whether there is a completion of the kind at or after index ci.
func (cq *compQueue) hasCompletion(ci uint32, kind armKind) bool {
	n := (cq.pi - ci) & ciMask
	if kind == armAny || n > cq.view.Count() {
		return n > 0
	}
	var e prm.CQE
	for i := cq.pi - n; i != cq.pi; i++ {
		if cq.view.Slot(i).Read(&e, cq.view.Owner(i)) && (e.Solicited || e.IsError()) {
			return true
		}
	}
	return false
}
