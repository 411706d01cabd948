package ucp

import (
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// protocol is what one class of operations (atomics, tagged messages, streams) adds to a worker and to its
// EPs. The core calls these functions and names no protocol. A nil function has nothing to do. None of them
// is called when an operation is posted in one call or completes, nor when its data arrives.
type protocol struct {
	// init makes the state of the worker, before its transports are open.
	init func(*Worker)
	// handlers returns the handlers of active messages, which every iface that has active messages gets.
	handlers func(*Worker) []handler

	// ifaceOpened is called when the worker has opened a transport.
	ifaceOpened func(*Worker, *iface)

	// arrivals handles what has arrived for the worker outside of operations, and returns how much there was.
	arrivals func(*Worker) int
	// work does deferred work of the worker outside of callbacks, and returns how much there was.
	work func(*Worker) int
	// worked is called after deferred work of the worker and of its EPs.
	worked func(*Worker)
	// alarm is called when the worker checks its deadlines.
	alarm func(*Worker)

	// linked is called when the EP has a link, before its handshake begins.
	linked func(*EP)
	// learned is called after each event of the handshake: the peer may have sent something new.
	learned func(*EP)
	// laneOpened is called when an endpoint of a transport is open.
	laneOpened func(*EP, *lane)
	// laneActivated is called when a lane is in use.
	laneActivated func(*EP)
	// lanesChanged is called when the EP has other lanes: what was chosen by them must be chosen anew.
	lanesChanged func(*EP)
	// accepted is called when a peer has made the EP.
	accepted func(*EP)
	// claimed is called when NewEP returns an EP that a peer has made.
	claimed func(*EP)
	// peerClosed is called when a transport reports that the peer has closed the connection. The reason may have
	// arrived already, as a handshake message.
	peerClosed func(*EP)
	// deferred does deferred work of an EP with a link.
	deferred func(*EP)
	// due returns when the EP has to do something if nothing happens before; ok is false if never.
	due func(*EP) (at time.Duration, ok bool)
	// timePassed does what is due. It reports whether it has destroyed the EP.
	timePassed func(*EP) bool

	// messaging is called when the EP gets what messages share.
	messaging func(*EP)
	// credited is called when the peer has granted credit, granted when credit was granted to the peer.
	credited, granted func(*EP)
	// inHand is how much of the credit that is due to the peer its messages may still hold, in bytes.
	inHand func(*EP) int64

	// bind is called when operations may go in one call over the lanes that there are: lanes, fences or the
	// state of the EP have changed.
	bind func(*EP)
	// unbind is called when no operation may go in one call any more.
	unbind func(*EP)
	// ready is called when fewer operations of the EP wait: messages behind them may go in one call again.
	ready func(*EP)
	// unsent is called when a message was canceled of which nothing was sent.
	unsent func(*Request)
	// delays reports that an EP whose operations have ended must wait for the peer before it leaves.
	delays func(*EP) bool

	// lanesClosing is called before the lanes of an EP close: operations in queues of transports end with st.
	lanesClosing func(e *EP, st ucs.Status)
	// lanesClosed is called when the lanes have closed.
	lanesClosed func(*EP)
	// incomingLost is called when nothing more comes from the peer, or is wanted: messages of which a part
	// is still to come end with st.
	incomingLost func(e *EP, st ucs.Status)
	// aborted is called last: operations that are neither in a list of the EP nor at a transport end with st.
	aborted func(e *EP, st ucs.Status)
	// stopped is called when the EP takes no more operations.
	stopped func(*EP)
	// discard is called when a loop-back closes: nobody receives what it has not received. discarded is called
	// after that.
	discard, discarded func(*EP)
	// destroyed is called when the EP leaves the worker, or starts over.
	destroyed func(*EP)
	// startedOver is called after destroyed if the EP starts over.
	startedOver func(*EP)

	// closing is called when the worker begins to close, or could not be opened.
	closing func(*Worker)
	// epsClosed is called when the worker has begun to close its EPs: operations without an EP end.
	epsClosed func(*Worker)
	// closed is called when all operations of the worker have ended, and its transports are still open.
	closed func(*Worker)
	// freed is called when the transports of the worker have closed.
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

// count calls a function of all protocols, and returns the sum of the results.
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

// delays reports that a protocol delays the end of the EP.
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

// inHand is the sum of inHand of all protocols.
func (e *EP) inHand() (n int64) {
	for _, p := range e.w.protocols {
		if p.inHand != nil {
			n += p.inHand(e)
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

// firstDue is the earliest time at which something is due, at or one of a protocol.
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
