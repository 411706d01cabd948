package ucp

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Progress completes operations, delivers arrived messages and continues
// handshakes. It returns the number of events; 0 means that the worker is idle. It does not block. The goroutine that
// owns the worker must call it. Callbacks that it runs must not call it: that panics, as does concurrent use that is
// detected. It polls the ifaces with connections; for each of the others it checks one flag.
func (w *Worker) Progress() int { // as Engine.Progress; so short that its caller need not call it
	t := w.engine.Ticks
	w.engine.Ticks--
	return w.engine.Run[t>>63].Progress()
}

// schedule makes the next Progress handle an EP.
func (w *Worker) schedule(e *EP) {
	if !e.scheduled {
		e.scheduled = true
		w.todo.deferred = append(w.todo.deferred, e)
		w.engine.Raise()
	}
}

// engineOwner is the worker as the owner of its engine.
type engineOwner struct{ w *Worker }

// Work implements engine.Owner.
func (o *engineOwner) Work() int {
	w := o.w
	n := len(w.todo.broken) + w.count(func(p *protocol) func(*Worker) int { return p.arrivals })
	broken := w.todo.broken
	w.todo.broken = nil
	for _, b := range broken {
		w.handleBrokenLane(b)
	}
	n += w.count(func(p *protocol) func(*Worker) int { return p.work })
	due := w.todo.deferred
	w.todo.deferred = w.todo.spare[:0]
	for _, e := range due {
		e.scheduled = false
		e.deferredWork()
	}
	clear(due)
	w.todo.spare = due
	w.each(func(p *protocol) func(*Worker) { return p.worked })
	return n + w.reportCompleted()
}

// deferredWork does the deferred work of an EP.
func (e *EP) deferredWork() {
	if e.state == epClosed {
		e.finishClose()
		return
	}
	if e.onlyClosed() {
		e.each(func(p *protocol) func(*EP) { return p.peerClosed })
	}
	e.closeFailed()
	e.closePostponed()
	if e.state == epClosing && e.deliversLast() {
		e.each(func(p *protocol) func(*EP) { return p.discard })
		e.each(func(p *protocol) func(*EP) { return p.discarded })
	}
	e.continueClose()
	if e.roles.needed != 0 && e.state < epFailed {
		e.connect()
	}
	if e.link == nil {
		if e.closing.ending && e.canDestroy() {
			e.destroy()
		}
		return
	}
	e.each(func(p *protocol) func(*EP) { return p.deferred })
	l := e.link
	if e.closing.notifies && l.answers == 0 {
		e.disconnect()
	}
	l.decide()
	if l.moveLanes(); e.link != l {
		return
	}
	if l.carrier.Err() != nil {
		e.carrierFailed()
	} else if !l.carrier.Advance(l.conn.Quiet() || l.conn.Over()) {
		e.w.schedule(e)
	}
	if e.closing.ending && !e.closing.notifies && l.carrier.Posted() {
		e.finishClose()
	}
	if e.closing.ending && e.canDestroy() {
		e.destroy()
	}
}

// connect requests the lanes that operations need. It requests the lane of messages first: an EP with that lane
// continues without lanes for other roles. An EP that has messages needs it.
func (e *EP) connect() {
	needs := e.roles.needed
	e.roles.needed = 0
	if e.link == nil {
		e.makeLink()
	}
	if e.roles.pinned.Has(wireup.AM) && e.link.lanes.Use[wireup.AM] == nil && e.peer.Best[wireup.AM].OK || needs.Has(wireup.AM) {
		needs &^= handshake.Set(wireup.AM)
		e.handle(handshake.Event{Kind: handshake.NeedLane, Role: wireup.AM})
	}
	for p := range wireup.Aux {
		if needs.Has(p) && e.state < epFailed {
			e.handle(handshake.Event{Kind: handshake.NeedLane, Role: p})
		}
	}
}

func (e *EP) makeLink() { e.makeLinkTo(0, e.w.own()) }

// makeLinkTo is makeLink for a peer that knows the address own. peerEP is the id of the peer's EP that
// waits for this one; 0: none waits.
func (e *EP) makeLinkTo(peerEP uint64, own localAddress) {
	e.link = &link{e: e, group: -1}
	e.link.lanes.Apart = e.w.stats.spans.measures()
	e.each(func(p *protocol) func(*EP) { return p.linked })
	e.link.conn = handshake.NewConn(handshake.ConnParams{
		Local: own.addr, Remote: e.peer.Addr, Reach: e.w.reacher(e.peer.Addr),
		PackedLocal: own.packed, LocalEP: e.id, PeerEP: peerEP, Seq: e.seq, Timeout: e.w.ctx.cfg.wireupTimeout(),
		Rails: e.w.ctx.cfg.rails(), Window: uint32(e.link.window), Retry: e.w.ctx.cfg.laneRetry(), Idle: e.w.ctx.cfg.idleTimeout() > 0,
		Loopback: peerEP == 0 && !e.origin.passive && e.peer.Addr.UUID() == e.w.net.addr.UUID(),
	})
	e.link.carrier = e.w.carrier(e)
	e.w.addLink(e.link)
}

// carrierFailed makes the carrier find another transport. If there is none, it fails an EP that has
// something to send to its peer or waits for a reply; otherwise it closes only
// the carrier.
func (e *EP) carrierFailed() {
	c, state := e.link.carrier, e.link.conn
	waits := !state.Quiet() && !state.Over()
	err := c.Err()
	if waits || !c.Posted() {
		ok, why := c.Recover(!waits)
		if ok {
			e.handle(handshake.Event{Kind: handshake.SendingFailed})
			e.w.schedule(e)
			if e.link != nil {
				c.Advance(false)
			}
			return
		}
		err = why
	}
	c.Close()
	if waits && state.Dispensable() {
		e.handle(handshake.Event{Kind: handshake.NoCarrier, Status: statusOf(err)})
		return
	}
	if waits {
		e.fail(statusOf(err), fmt.Errorf("handshake: %w", err), nil)
	}
}

// laneBroke is called by transports when an endpoint has failed.
func (w *Worker) laneBroke(ep uct.EP, err error) {
	if statusOf(err) == ucs.StatusPeerClosed {
		w.stats.closedLanes.Inc()
	} else {
		w.stats.brokenLanes.Inc()
	}
	w.todo.broken = append(w.todo.broken, brokenLane{ep, err})
	w.engine.Raise()
}

// pathFailed excludes a path from lanes over which the carrier of the handshake could not
// connect. Lanes over it would wait for the same failure.
func (e *EP) pathFailed(p conn.Path, err error) {
	switch st := statusOf(err); st {
	case ucs.StatusUnreachable, ucs.StatusTimedOut, ucs.StatusRejected:
		e.handle(handshake.Event{Kind: handshake.PathFailed, Local: p.Local, Remote: p.Remote, Status: st})
	}
}

// reason returns why an operation was rejected: the failure of the lane that its transport has
// reported, if the EP does not know it yet.
func (e *EP) reason(err error) error {
	if errors.Is(err, uct.ErrEPFailed) {
		if _, why := e.reportedBrokenLane(); why != nil {
			return why
		}
	}
	return err
}

// handleBrokenLane handles the failure of a transport endpoint.
func (w *Worker) handleBrokenLane(b brokenLane) {
	o := w.lanes.byEP[b.ep]
	if o.carrier != nil {
		o.carrier.Fail(b.err)
		o.e.pathFailed(o.carrier.Path(), b.err)
		return
	}
	e := o.e
	if e == nil || e.link == nil {
		return
	}
	if e.link.reserved == b.ep {
		e.link.releaseCarrier()
		return
	}
	if statusOf(b.err) == ucs.StatusPeerClosed {
		e.receiveRest()
		if e.each(func(p *protocol) func(*EP) { return p.peerClosed }); e.link == nil {
			return
		}
	}
	x := e.laneOf(b.ep)
	switch {
	case x == nil || x.Retired:
	case e.origin.adopted && statusOf(b.err) == ucs.StatusPeerClosed && !e.link.onTrial(x):
		e.startOver()
	default:
		e.laneBroke(x, b.err)
	}
}

// receiveRest delivers the messages that a peer sent before it closed. They have arrived, as
// the peer flushes first, but the close may have been seen first, over another lane.
func (e *EP) receiveRest() {
	l := e.link
	if l == nil || !e.roles.pinned.Has(wireup.AM) {
		return
	}
	x := l.lanes.Use[wireup.AM]
	if x != nil && l.moves == nil {
		x.Iface.receiveRest()
		return
	}
	for n := 0; n < len(l.lanes.All) && e.link == l; n++ { // the peer may use another lane
		if y := &l.lanes.All[n]; y.EP != nil {
			y.Iface.receiveRest()
		}
	}
}

// maxRestPolls limits receiveRest while other peers send: the messages of a window
// arrive in fewer polls.
const maxRestPolls = 1 << 12
