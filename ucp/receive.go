package ucp

import (
	"time"

	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/uct"
)

// connectState is the state of a worker for handshakes and listeners.
type connectState struct {
	halfOpen  conn.HalfOpen[*EP] // passive EPs that no listener has accepted; see passive.go
	inbox     conn.Inbox
	late      conn.Late
	listening listening
	dials     *dialStats // nil before the first call of Dial
}

// connectProtocol connects EPs: handshakes, and the sockets of Listen and Dial.
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
		e.link.endHalfOpen()
		e.link.scheduleKeepalive()
	},
	claimed: func(e *EP) {
		if e.link != nil {
			e.link.endHalfOpen()
		}
	},
	peerClosed: (*EP).receiveNotice,
	due:        (*EP).dueAlone,
	timePassed: func(e *EP) bool {
		if e.link.expired() {
			e.expire()
			return true
		}
		e.link.sendKeepalives()
		e.link.idleTimePassed()
		return false
	},
	destroyed: func(e *EP) {
		e.w.dropExpected(e)
		if e.link != nil {
			e.link.endHalfOpen()
		}
	},
	closing: func(w *Worker) {
		w.stopListening()
		w.removePorts()
	},
}

// handleWireup copies a handshake message for the next Progress: handling it may make and close
// transport endpoints (package uct, "Calls from callbacks"). The limit of the inbox also limits the
// work that one poll of an iface can cause.
func (w *Worker) handleWireup(data []byte, _ uct.Desc) bool {
	if len(data) <= handshake.MaxMsgLen+conn.ProofLen && w.connecting.inbox.Add(data) {
		w.engine.Raise()
	} else {
		w.stats.badMessages.Inc()
	}
	return false
}

// receiveAll handles the handshake messages in the inbox and the REQUESTs that waited.
func (w *Worker) receiveAll() int {
	inbox := w.connecting.inbox.Take()
	for _, b := range inbox {
		w.receive(b)
	}
	return len(inbox) + w.receiveLate()
}

// receiveLate handles REQUESTs that waited for room among the half-open connections.
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

// latePause is the least time between two attempts to handle waiting REQUESTs.
const latePause = 100 * time.Millisecond

// receive handles a handshake message. A REQUEST may make its connection. A message without the
// proof that it is from the worker that it names is dropped. b then belongs to receive.
func (w *Worker) receive(b []byte) {
	m, err := handshake.UnpackMsg(conn.Unsealed(b))
	if err != nil || m.DstUUID != w.net.addr.UUID() {
		w.stats.badMessages.Inc()
		return
	}
	e := w.match(m)
	switch {
	case e != nil && !e.peer.Proves(b):
		e = nil
	case e == nil && m.Type == handshake.Request && m.DstEP == 0:
		e = w.newPassive(m, b)
	}
	if e != nil && m.Type == handshake.Disconnect {
		e.receiveRest()
	}
	if e == nil || e.state >= epFailed && m.Type != handshake.Disconnect || e.state == epClosed {
		w.stats.badMessages.Inc()
		return
	}
	if e.closing.notifies { // its lanes are closed: the handshake does not continue
		e.disconnect()
	}
	switch {
	case e.link != nil:
	case e.origin.passive:
		e.begin()
	default:
		e.makeLink()
	}
	if m.Type == handshake.Request && !w.passToUser(e) {
		return
	}
	e.handle(handshake.Event{Kind: handshake.MsgReceived, Msg: m})
	if e.link != nil && e.state < epFailed && e.link.conn.RemoteEP() == m.SrcEP {
		w.names.SetPeerID(m.SrcUUID, m.SrcEP, e)
	}
	w.schedule(e)
}

// receiveNotice handles the handshake messages that have arrived, when a transport reports that the
// peer has closed the connection. If the peer closed because of a failure, it has sent the reason
// before, over another lane that was not polled yet. Because receiveNotice polls, only Work calls
// it.
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

// ended reports whether the EP is closed, closing or failed with a known reason.
func (e *EP) ended() bool {
	return e.state >= epFailed && !e.onlyClosed() || e.closing.ending || e.link == nil
}

// match returns the connection of a message, or nil. A REQUEST without an id of this side belongs
// to the connection that this side has made under the same number. If a worker connects to itself, it has both EPs of the
// connection; a REQUEST then never matches the EP that has sent it.
func (w *Worker) match(m *handshake.Msg) *EP {
	if m.DstEP != 0 {
		if e := w.eps.Find(m.DstEP); e != nil && e.peer.Addr.UUID() == m.SrcUUID {
			return e
		}
		return nil
	}
	if e := w.names.ByPeerID(m.SrcUUID, m.SrcEP); e != nil && (m.Type != handshake.Request || e.peer.Is(m.Addr)) {
		return e
	}
	if m.Type != handshake.Request {
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

// newPassive makes the passive EP for a REQUEST, whose bytes are b. It returns nil if the message
// does not prove that it is from the worker at its address, if the peer may not connect, or if
// there is no room.
func (w *Worker) newPassive(m *handshake.Msg, b []byte) *EP {
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
	w.addPeerRef(e)
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

// sourceOf returns the source of a REQUEST of a peer that handshakes can reach.
func sourceOf(p *conn.Peer) conn.Source {
	return conn.Source{Host: string(p.Addr.Resources[p.Aux[0].Remote].DeviceAddr), Worker: p.Addr.UUID()}
}

// makeRoom reports whether there is room for a half-open connection of a source. It may evict
// another one.
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
