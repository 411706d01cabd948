package adapter

import (
	"errors"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// object is an object of the context. Events of the kernel contain its ID.
type object struct {
	kind   objectKind
	number uint32
	qp     *queuePair // nil unless the object is a QP
}

type objectKind uint8

const (
	kindCQ objectKind = iota
	kindSRQ
	kindQP
)

// newID returns an ID that no object of the context has or had.
func (h *hardware) newID() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastID++
	return h.lastID
}

// SetAsyncSink implements prm.Hardware.
func (h *hardware) SetAsyncSink(s prm.AsyncSink) { h.sink.Store(&s) }

// deliverEvents delivers asynchronous events to the sink until the context is closed.
func (h *hardware) deliverEvents() {
	defer close(h.eventLoop)
	for {
		e, err := h.ctx.NextEvent()
		if err != nil {
			if !errors.Is(err, ucs.ErrClosed) { // not closed: the device was removed
				h.raise(verbs.EventDeviceFatal, 0)
			}
			return
		}
		h.deliver(e)
	}
}

// deliver delivers an event to the sink. It drops events of destroyed objects and of ports, and event types that package
// verbs does not define.
func (h *hardware) deliver(e uverbs.Event) {
	if e.Type > uint32(verbs.EventQPLastWQEReached) {
		return
	}
	typ := verbs.EventType(e.Type)
	if typ == verbs.EventDeviceFatal {
		h.raise(typ, 0)
		return
	}
	kind, known := kindOf(typ)
	if !known {
		return
	}
	h.mu.Lock()
	o, ok := h.byID[e.Element]
	h.mu.Unlock()
	if !ok || o.kind != kind {
		return
	}
	if o.qp != nil && isFailure(typ) {
		o.qp.failed.Store(true)
	}
	h.raise(typ, o.number)
}

// kindOf returns the type of object of an event type; false if package verbs does not define the event type.
func kindOf(t verbs.EventType) (objectKind, bool) {
	switch t {
	case verbs.EventCQErr:
		return kindCQ, true
	case verbs.EventSRQErr, verbs.EventSRQLimitReached:
		return kindSRQ, true
	case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr, verbs.EventCommEst, verbs.EventQPLastWQEReached:
		return kindQP, true
	}
	return 0, false
}

// isFailure reports whether the device has moved the QP of an event to ERR.
func isFailure(t verbs.EventType) bool {
	return t == verbs.EventQPFatal || t == verbs.EventQPReqErr || t == verbs.EventQPAccessErr
}

func (h *hardware) raise(t verbs.EventType, number uint32) {
	if s := h.sink.Load(); s != nil {
		(*s).AsyncEvent(t, number)
	}
}
