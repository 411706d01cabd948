package ucp

import (
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// handleWireup keeps a handshake message for the next Progress: handling it makes
// and closes transport endpoints, which a transport's callback must not.
func (w *Worker) handleWireup(data []byte, _ uct.Desc) bool {
	if len(w.inbox) < maxInbox && len(data) <= wireup.MaxMsgLen {
		w.inbox = append(w.inbox, append([]byte(nil), data...))
		w.raise()
	} else {
		w.stats.badMessages.Inc()
	}
	return false
}

// maxInbox bounds the memory that strangers can make a worker keep between two
// calls of Progress.
const maxInbox = 4096

// receive hands a handshake message to the connection that it is about, which is
// made if the message asks for that.
func (w *Worker) receive(b []byte) {
	m, err := wireup.UnpackMsg(b)
	if err != nil || m.DstUUID != w.addr.UUID {
		w.stats.badMessages.Inc()
		return
	}
	e := w.match(m)
	if e == nil || e.state >= epFailed && m.Type != wireup.Disconnect || e.state == epClosed {
		w.stats.badMessages.Inc()
		return
	}
	if e.link == nil {
		e.makeLink()
	}
	e.handle(wireup.Event{Kind: wireup.MsgReceived, Msg: m})
	if e.link != nil && e.state < epFailed {
		w.byPeer[remoteEP{m.SrcUUID, m.SrcEP}] = e
	}
	w.addChore(e)
}

// match finds the connection of a message. A REQUEST that names none is about the
// one made under the same number by this side, or makes a new one. A worker that
// connects to itself has both ends, so there a REQUEST never finds its sender.
func (w *Worker) match(m *wireup.Msg) *EP {
	if m.DstEP != 0 {
		if e := w.eps.find(m.DstEP); e != nil && e.peer.addr.UUID == m.SrcUUID {
			return e
		}
		return nil
	}
	if e := w.byPeer[remoteEP{m.SrcUUID, m.SrcEP}]; e != nil {
		return e
	}
	if m.Type != wireup.Request {
		return nil
	}
	if m.SrcUUID != w.addr.UUID {
		e := w.bySeq[connSeq{m.SrcUUID, m.Seq}]
		if e != nil && (e.link == nil || e.link.conn.RemoteEP() == 0) {
			return e
		}
	}
	return w.invite(m)
}

// invite makes the passive side of a connection.
func (w *Worker) invite(m *wireup.Msg) *EP {
	if w.closed {
		return nil
	}
	p, err := w.findPeer(m.Addr)
	if err != nil {
		return nil
	}
	if p.addr.UUID != m.SrcUUID || !p.best[wireup.Aux].ok {
		w.unusedPeer(p)
		return nil
	}
	e := &EP{w: w, peer: p, seq: m.Seq, passive: true}
	p.refs++
	e.id = w.eps.add(e)
	key := connSeq{m.SrcUUID, m.Seq}
	if w.bySeq[key] == nil && m.SrcUUID != w.addr.UUID {
		w.bySeq[key] = e
	}
	return e
}
