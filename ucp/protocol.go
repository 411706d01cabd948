package ucp

import (
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// protocol has the functions by which one class of operations (atomics, tagged messages, streams) extends workers and
// EPs. The core calls these functions and names no protocol. A nil function is skipped. The core calls none
// when an operation is posted in one call or completes, nor when its data arrives. The goroutine that owns the worker
// calls all functions.
type protocol struct {
	// init makes the state of the worker, before the worker opens its transports.
	init func(*Worker)
	// handlers returns the handlers that the worker sets on every iface with active messages.
	handlers func(*Worker) []handler

	// ifaceOpened is called when the worker has opened a transport.
	ifaceOpened func(*Worker, *iface)

	// arrivals handles events of the worker that belong to no operation, and returns their number.
	arrivals func(*Worker) int
	// work does deferred work of the worker outside of callbacks, and returns the number of items.
	work func(*Worker) int
	// worked is called after the deferred work of the worker and of its EPs.
	worked func(*Worker)
	// alarm is called when the worker checks its deadlines.
	alarm func(*Worker)

	// linked is called when the EP has a link, before its handshake begins.
	linked func(*EP)
	// learned is called after each event of the handshake, which may contain new data of the peer.
	learned func(*EP)
	// laneOpened is called when the transport endpoint of a lane is open.
	laneOpened func(*EP, *lane)
	// laneActivated is called when a lane has been activated.
	laneActivated func(*EP)
	// lanesChanged is called when the lanes of the EP have changed: choices that depend on them are no longer valid.
	lanesChanged func(*EP)
	// accepted is called when a REQUEST of a peer has made the EP.
	accepted func(*EP)
	// claimed is called when NewEP returns an EP that a REQUEST has made.
	claimed func(*EP)
	// peerClosed is called when a transport reports that the peer has closed the connection. The reason may have
	// arrived already, as a handshake message.
	peerClosed func(*EP)
	// deferred does deferred work of an EP with a link.
	deferred func(*EP)
	// due returns the next deadline of the EP, in time of the worker's alarm; ok is false if there is none.
	due func(*EP) (at time.Duration, ok bool)
	// timePassed handles deadlines that have passed. It reports whether it has destroyed the EP.
	timePassed func(*EP) bool

	// traffic returns a number that changes with each message of the EP, and whether the lanes of an EP without operations
	// may close: no message has arrived in part or is stored here.
	traffic func(*EP) (n int64, quiet bool)

	// messaging is called when the EP has a new messages state.
	messaging func(*EP)
	// credited is called when the peer has granted credit, granted when credit was granted to the peer.
	credited, granted func(*EP)
	// moreCredit is called when messages of the EP have more credit than before.
	moreCredit func(*EP)
	// chargeInHandlers returns the part of the credit due to the peer that its messages may still need, in bytes.
	chargeInHandlers func(*EP) int64

	// bind is called when operations may be posted in one call over the current lanes, after the lanes, fences or the
	// state of the EP have changed.
	bind func(*EP)
	// unbind is called when operations must no longer be posted in one call.
	unbind func(*EP)
	// ready is called when fewer operations of the EP wait: later messages may be posted in one call again.
	ready func(*EP)
	// unsent is called when a message was canceled before any part of it was sent, or was sent out of turn.
	unsent func(*Request)
	// delays reports whether an EP without operations must wait for the peer before it disconnects.
	delays func(*EP) bool

	// lanesClosing is called before the lanes of an EP close. It fails operations in queues of transports with st.
	lanesClosing func(e *EP, st ucs.Status)
	// lanesClosed is called when the lanes have closed.
	lanesClosed func(*EP)
	// incomingLost is called when no more messages arrive from the peer, or they are ignored. It fails
	// messages that have arrived in part, with st.
	incomingLost func(e *EP, st ucs.Status)
	// aborted is called last. It fails operations that are neither in a list of the EP nor at a transport, with st.
	aborted func(e *EP, st ucs.Status)
	// flushes is called when CloseFlush begins, before stopped.
	flushes func(*EP)
	// stopped is called when the EP accepts no more operations.
	stopped func(*EP)
	// discard is called when a loop-back closes. It drops messages and stream data that were not received. discarded is
	// called after that.
	discard, discarded func(*EP)
	// destroyed is called when the EP is removed from the worker, or starts over.
	destroyed func(*EP)
	// startedOver is called after destroyed if the EP starts over.
	startedOver func(*EP)

	// closing is called when the worker begins to close, or when opening it has failed.
	closing func(*Worker)
	// epsClosed is called when the worker has begun to close its EPs. It completes operations without an EP.
	epsClosed func(*Worker)
	// closed is called when all operations of the worker have completed, and its transports are closed.
	closed func(*Worker)
	// freed is called after closed. It frees memory, and the Close of the worker returns its error.
	freed func(*Worker) error
}

// handler is the handler of the active messages with an id.
type handler struct {
	id uint8
	uct.AMHandler
}

// protocolHandlers sets the handlers of all protocols on an iface.
func (w *Worker) protocolHandlers(i *iface) error {
	for _, p := range w.protocols {
		if p.handlers == nil {
			continue
		}
		for _, h := range p.handlers(w) {
			if err := i.SetAMHandler(h.id, h.AMHandler); err != nil {
				return err
			}
		}
	}
	return nil
}

// count calls one function of all protocols, and returns the sum of the results.
func (w *Worker) count(pick func(*protocol) func(*Worker) int) (n int) {
	for _, p := range w.protocols {
		if f := pick(p); f != nil {
			n += f(w)
		}
	}
	return n
}

// ifaceOpened calls ifaceOpened of all protocols.
func (w *Worker) ifaceOpened(i *iface) {
	for _, p := range w.protocols {
		if p.ifaceOpened != nil {
			p.ifaceOpened(w, i)
		}
	}
}

// bind, unbind and ready call the functions of all protocols.
func (e *EP) bind()   { e.each(func(p *protocol) func(*EP) { return p.bind }) }
func (e *EP) unbind() { e.each(func(p *protocol) func(*EP) { return p.unbind }) }
func (e *EP) ready()  { e.each(func(p *protocol) func(*EP) { return p.ready }) }

// delays reports whether a protocol delays the disconnection of the EP.
func (e *EP) delays() bool {
	for _, p := range e.w.protocols {
		if p.delays != nil && p.delays(e) {
			return true
		}
	}
	return false
}

// lanesChanged calls lanesChanged of all protocols.
func (e *EP) lanesChanged() { e.each(func(p *protocol) func(*EP) { return p.lanesChanged }) }

// laneOpened calls laneOpened of all protocols.
func (e *EP) laneOpened(x *lane) {
	for _, p := range e.w.protocols {
		if p.laneOpened != nil {
			p.laneOpened(e, x)
		}
	}
}

// chargeInHandlers returns the sum of the charges of all protocols, in bytes.
func (e *EP) chargeInHandlers() (n int64) {
	for _, p := range e.w.protocols {
		if p.chargeInHandlers != nil {
			n += p.chargeInHandlers(e)
		}
	}
	return n
}

// unsent calls unsent of all protocols.
func (r *Request) unsent() {
	for _, p := range r.worker.protocols {
		if p.unsent != nil {
			p.unsent(r)
		}
	}
}

// firstDue returns the earlier one of at, if ok is set, and the first deadline of the protocols.
func (e *EP) firstDue(at time.Duration, ok bool) (time.Duration, bool) {
	for _, p := range e.w.protocols {
		if p.due == nil {
			continue
		}
		if t, due := p.due(e); due && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

// protocolTime calls timePassed of all protocols. It reports whether the EP is destroyed.
func (e *EP) protocolTime() bool {
	for _, p := range e.w.protocols {
		if p.timePassed != nil && p.timePassed(e) {
			return true
		}
	}
	return false
}

// freeProtocols calls freed of all protocols.
func (w *Worker) freeProtocols() error {
	var errs []error
	for _, p := range w.protocols {
		if p.freed != nil {
			errs = append(errs, p.freed(w))
		}
	}
	return ucs.Join(errs...)
}

// each calls a function of all protocols, in the order of Worker.protocols.
func (w *Worker) each(pick func(*protocol) func(*Worker)) {
	for _, p := range w.protocols {
		if f := pick(p); f != nil {
			f(w)
		}
	}
}

// each is Worker.each for a function with an EP.
func (e *EP) each(pick func(*protocol) func(*EP)) {
	for _, p := range e.w.protocols {
		if f := pick(p); f != nil {
			f(e)
		}
	}
}

// endEach is each for a function that ends operations with st.
func (e *EP) endEach(st ucs.Status, pick func(*protocol) func(*EP, ucs.Status)) {
	for _, p := range e.w.protocols {
		if f := pick(p); f != nil {
			f(e, st)
		}
	}
}
