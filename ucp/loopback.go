package ucp

import (
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// A loop-back is an EP that NewEP has made to the own worker. It is both ends: its messages carry its
// own id and arrive on it. The EP at the other end of its lanes sends and receives nothing.
//
// Close of a loop-back must not wait for a receive, since the caller of Close would have to post it.
// With CloseFlush, receives that are posted get their messages, and eager messages that match none stay
// receivable by their tags. The rest is as if the peer had closed its EP: unread stream data is discarded,
// and sends whose data or acknowledgement waits for a receive complete.

// isLoopback reports whether the messages of the EP arrive on itself. It is false before the handshake:
// nothing has been sent then.
func (e *EP) isLoopback() bool { return e.link != nil && e.link.conn.Loopback() }

// receives reports whether the EP takes messages: it is open, or a loop-back that delivers what it has
// sent before it closes.
func (e *EP) receives() bool { return e.state == epOpen || e.deliversLast() }

// deliversLast reports whether the EP is a loop-back that closes in order and still takes messages.
func (e *EP) deliversLast() bool {
	return e.state == epClosing && !e.ending && e.aborting == ucs.StatusOK && e.isLoopback()
}

// senderClosing is sender for an EP that is not open, or nil.
//
//go:noinline
func (w *Worker) senderClosing(e *EP) *EP {
	if e == nil || !e.deliversLast() {
		w.stats.badMessages.Inc()
		return nil
	}
	w.schedule(e) // for discardUnread
	return e
}

// discardUnread discards what nobody receives from a loop-back that closes: unread stream data, and
// messages whose data is still with their sender and that match no posted receive. Their credit returns
// at once, so that queued sends proceed.
func (e *EP) discardUnread() {
	m := e.msgs
	if m == nil {
		return
	}
	m.dropStream()
	m.sender.returnReserved()
	for a := m.rndv; a != nil; {
		next := a.next
		m.giveUp(a, ucs.StatusPeerClosed)
		a = next
	}
	if m.settle(); m.due > 0 {
		m.grant()
	}
	m.measure()
	m.stream.skipUnsent()
	e.replayQueued()
}

// skipUnsent completes the send of stream data that waits for credit. Unreceived tagged messages can use the
// whole window, and nobody reads the data. s may be nil.
func (s *stream) skipUnsent() {
	if s != nil && s.starved {
		s.sending.off = len(s.sending.buf)
		s.goOn()
	}
}

// echoStage is a message that a loop-back which closes sends to itself. When it arrives, all messages
// that were posted before have arrived.
var echoStage = stage{name: "close", role: noRole, done: (*Request).echoed}

// echoes is how many of them a loop-back sends: behind its last operation, and behind the replies to that.
const echoes = 2

// sendEcho sends one if the EP is a loop-back and has to. It reports whether the EP must wait.
func (e *EP) sendEcho() bool {
	if !e.deliversLast() || e.lane(wireup.AM) == nil {
		return false
	}
	m := e.messaging()
	if m.echoes == echoes || m.echoes > 0 && m.awaits() {
		return false
	}
	m.echoes++
	r := e.w.newRequest(e, &echoStage)
	r.nameIt()
	r.awaitPeer()
	e.control(ackControl, r.remote, uint64(ucs.StatusOK))
	r.posted()
	r.Release()
	return true
}

// echoed ends the synchronous sends whose messages match no receive: every acknowledgement has arrived.
func (r *Request) echoed() {
	e := r.ep
	r.settle(r.comp.Status)
	if e.deliversLast() {
		e.msgs.endUnmatched()
	}
}

// endUnmatched ends the synchronous sends that wait for a receive.
func (m *messages) endUnmatched() {
	for r := m.awaited.first; r != nil; {
		next := r.next
		if r.msg != nil && r.msg.acked && !r.stage.announces && r.flags&reqLed == 0 {
			r.comp.Complete(ucs.StatusPeerClosed)
		}
		r = next
	}
}

// acknowledge ends a message of the peer that waits for its receiver.
func (m *messages) acknowledge(id uint64, st ucs.Status) {
	e := m.e
	switch {
	case e.msgs != m:
	case e.state == epOpen:
		e.control(ackControl, id, uint64(st))
	case e.deliversLast(): // at once: endUnmatched ends those without
		e.w.handleAck(&wire.Control{ID: id, Value: uint64(st)}, e)
	}
}

// wordsTo is the EP that takes the words of notifications which arrive on the lanes of e: e, or the loop-back
// at the other end of these.
func (e *EP) wordsTo() *EP {
	if !e.passive || e.peer.Addr.UUID() != e.w.addr.UUID() {
		return e
	}
	if other := e.w.eps.Find(e.link.conn.RemoteEP()); other != nil && other.isLoopback() {
		return other
	}
	return e
}
