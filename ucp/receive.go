package ucp

import (
	"time"

	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// connectState is what a worker has for handshakes and listeners.
type connectState struct {
	halfOpen  conn.HalfOpen[*EP] // that no listener has accepted; see passive.go
	inbox     conn.Inbox
	late      conn.Late
	listening listening
	dials     *dialStats // nil before the first call of Dial
}

// connectProtocol is how EPs connect: handshakes, and the sockets of Listen and Dial.
var connectProtocol = protocol{
	handlers: func(w *Worker) []handler {
		return []handler{{wire.AMWireup, uct.AMHandlerFunc(w.handleWireup)}}
	},
	init:        func(w *Worker) { w.carrier = newCarrier },
	ifaceOpened: (*Worker).addPort,
	arrivals:    (*Worker).receiveAll,
	work:        (*Worker).answerDialers,
	alarm: func(w *Worker) {
		if !w.connecting.late.Empty() {
			w.engine.Raise()
		}
	},
	laneActivated: func(e *EP) {
		e.link.whole()
		e.link.keepAlive()
	},
	claimed: func(e *EP) {
		if e.link != nil {
			e.link.whole()
		}
	},
	peerClosed: (*EP).receiveNotice,
	due:        (*EP).dueAlone,
	timePassed: func(e *EP) bool {
		if e.link.expired() {
			e.expire()
			return true
		}
		e.link.ask()
		return false
	},
	destroyed: func(e *EP) {
		e.w.unexpect(e)
		if e.link != nil {
			e.link.whole()
		}
	},
	closing: func(w *Worker) {
		w.stopListening()
		w.removePorts()
	},
}

// handleWireup keeps a handshake message, which is lent, for the next Progress. A handler
// may make and close transport endpoints as well (package uct, "Calls from inside"); the
// bound on what is kept also bounds what one poll of an iface has a worker do.
func (w *Worker) handleWireup(data []byte, _ uct.Desc) bool {
	if len(data) <= wireup.MaxMsgLen+conn.ProofLen && w.connecting.inbox.Add(data) {
		w.engine.Raise()
	} else {
		w.stats.badMessages.Inc()
	}
	return false
}

// receiveAll handles the handshake messages that have arrived, and REQUESTs that have waited.
func (w *Worker) receiveAll() int {
	inbox := w.connecting.inbox.Take()
	for _, b := range inbox {
		w.receive(b)
	}
	return len(inbox) + w.receiveLate()
}

// receiveLate handles REQUESTs that have waited for room among the connections that are half open.
func (w *Worker) receiveLate() (n int) {
	if w.connecting.late.Empty() {
		return 0
	}
	now := w.engine.Alarm.Now()
	room := func(from conn.Source) bool { return w.makeRoom(from, now) }
	for ; ; n++ {
		b := w.connecting.late.Next(now, room)
		if b == nil {
			break
		}
		w.receive(b)
	}
	if !w.connecting.late.Empty() && w.connecting.halfOpen.Len() > 0 {
		w.engine.Alarm.Set(max(w.connecting.halfOpen.EvictableAt(), now+latePause))
	}
	return n
}

// latePause is the least time between two looks at REQUESTs that wait while no connection comes about.
const latePause = 100 * time.Millisecond

// receive hands a handshake message to the connection that it is about, which is
// made if the message asks for that. It drops a message that does not prove that it is of the
// worker that it names. It may keep b.
func (w *Worker) receive(b []byte) {
	m, err := wireup.UnpackMsg(conn.Unsealed(b))
	if err != nil || m.DstUUID != w.net.addr.UUID() {
		w.stats.badMessages.Inc()
		return
	}
	e := w.match(m)
	switch {
	case e != nil && !e.peer.Proves(b):
		e = nil
	case e == nil && m.Type == wireup.Request && m.DstEP == 0:
		e = w.newPassive(m, b)
	}
	if e != nil && m.Type == wireup.Disconnect {
		e.receiveRest()
	}
	if e == nil || e.state >= epFailed && m.Type != wireup.Disconnect || e.state == epClosed {
		w.stats.badMessages.Inc()
		return
	}
	if e.closing.notifies { // its lanes are closed: nothing of the handshake goes on
		e.disconnect()
	}
	switch {
	case e.link != nil:
	case e.origin.passive:
		e.begin()
	default:
		e.makeLink()
	}
	if m.Type == wireup.Request && !w.arrived(e) {
		return
	}
	e.handle(wireup.Event{Kind: wireup.MsgReceived, Msg: m})
	if e.link != nil && e.state < epFailed && e.link.conn.RemoteEP() == m.SrcEP {
		w.names.Call(m.SrcUUID, m.SrcEP, e)
	}
	w.schedule(e)
}

// receiveNotice handles the handshake messages that are here, where a transport says that the peer
// has closed the connection: if the peer did so for a failure, it has told why before, over another
// lane, whose arrivals are seen later. It polls, so that it is called by Work only.
func (e *EP) receiveNotice() {
	if e.ended() {
		return
	}
	for _, p := range e.peer.Aux {
		i := e.w.ifaces[p.Local]
		for range maxRestPolls {
			n := i.Progress()
			for _, b := range e.w.connecting.inbox.Take() {
				e.w.receive(b)
			}
			if n == 0 {
				break
			}
			if e.ended() {
				return
			}
		}
	}
}

// ended reports that the EP is over, or about to be, for a reason that is known.
func (e *EP) ended() bool {
	return e.state >= epFailed && !e.onlyClosed() || e.closing.ending || e.link == nil
}

// match finds the connection of a message; nil if there is none. A REQUEST that names none is
// about the one made under the same number by this side. A worker that connects to itself has
// both ends, so there a REQUEST never finds its sender.
func (w *Worker) match(m *wireup.Msg) *EP {
	if m.DstEP != 0 {
		if e := w.eps.Find(m.DstEP); e != nil && e.peer.Addr.UUID() == m.SrcUUID {
			return e
		}
		return nil
	}
	if e := w.names.Called(m.SrcUUID, m.SrcEP); e != nil && (m.Type != wireup.Request || e.peer.Is(m.Addr)) {
		return e
	}
	if m.Type != wireup.Request {
		return nil
	}
	if m.SrcUUID != w.net.addr.UUID() {
		e := w.names.At(m.SrcUUID, m.Seq)
		if e != nil && (e.link == nil || e.link.conn.RemoteEP() == 0) && e.peer.Is(m.Addr) {
			return e
		}
	}
	return nil
}

// newPassive makes the passive side of a connection that a REQUEST asks for, which came as b; nil
// if that does not prove that it is of the worker at its address.
func (w *Worker) newPassive(m *wireup.Msg, b []byte) *EP {
	if w.closed {
		return nil
	}
	p, err := w.peers.Find(m.Addr)
	if err != nil {
		return nil
	}
	if p.Addr.UUID() != m.SrcUUID || len(p.Aux) == 0 || !p.Proves(b) {
		w.peers.Unused(p)
		return nil
	}
	if !w.mayConnect(p) {
		w.peers.Unused(p)
		w.stats.refusedPeers.Inc()
		return nil
	}
	from, now := sourceOf(p), w.engine.Alarm.Now()
	tooMany := w.hasTooManyEPs(p)
	if !w.makeRoom(from, now) {
		w.peers.Unused(p)
		w.stats.refusedPeers.Inc()
		w.connecting.late.Add(from, now, b)
		w.engine.Alarm.Set(max(w.connecting.halfOpen.EvictableAt(), now+latePause))
		return nil
	}
	e := &EP{w: w, peer: p, seq: m.Seq, origin: epOrigin{passive: true, unverified: true}}
	w.hold(e)
	w.connecting.halfOpen.Add(e, from, now)
	if tooMany {
		e.reject(m.SrcEP)
		return nil
	}
	e.countMade(true)
	e.each(func(p *protocol) func(*EP) { return p.accepted })
	if w.names.At(m.SrcUUID, m.Seq) == nil && m.SrcUUID != w.net.addr.UUID() {
		w.names.Enter(m.SrcUUID, m.Seq, e)
	}
	return e
}

// sourceOf is the source of a REQUEST with the address of a peer that handshakes can reach.
func sourceOf(p *conn.Peer) conn.Source {
	return conn.Source{Host: string(p.Addr.Resources[p.Aux[0].Remote].DeviceAddr), Worker: p.Addr.UUID()}
}

// makeRoom reports whether there is room for a connection of a source, for which it may evict another
// one.
func (w *Worker) makeRoom(from conn.Source, now time.Duration) bool {
	if w.connecting.halfOpen.Room(from) {
		return true
	}
	e, ok := w.connecting.halfOpen.Victim(from, now)
	if ok {
		e.evict()
	}
	return ok
}
