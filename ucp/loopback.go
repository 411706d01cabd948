package ucp

import (
	"github.com/gucx/gucx/ucs"
)

// A loop-back is an EP that NewEP has made to its own worker. It is both the sender and the receiver: its messages
// contain its own id and arrive on it. The EP at the other end of its lanes sends and receives no messages.
//
// Close of a loop-back must not wait for a receive, since the caller of Close would have to post it.
// With CloseFlush, posted receives complete with their messages, and eager messages that match none can
// be received later by their tags. Everything else happens as if the peer had closed its EP: unread stream data is discarded,
// and sends that wait for a receive complete.

// isLoopback reports whether the messages of the EP arrive on itself. It is false before the handshake:
// nothing has been sent then.
func (e *EP) isLoopback() bool { return e.link != nil && e.link.conn.Loopback() }

// receives reports whether the EP accepts messages: it is open, or a closing loop-back that delivers the messages that
// it has sent.
func (e *EP) receives() bool { return e.state == epOpen || e.deliversLast() }

// deliversLast reports whether the EP is a loop-back that closes gracefully and still accepts messages.
func (e *EP) deliversLast() bool {
	return e.state == epClosing && !e.closing.ending && e.closing.aborting == ucs.StatusOK && e.isLoopback()
}

// senderClosing is sender for an EP that is not open, or nil.
//
//go:noinline
func (w *Worker) senderClosing(e *EP) *EP {
	if e == nil || !e.deliversLast() {
		w.stats.badMessages.Inc()
		return nil
	}
	w.schedule(e) // for protocol.discard
	return e
}

// notificationEP returns the EP for the words of notifications that arrive on the lanes of e: e, or the loop-back
// at the other end of the lanes.
func (e *EP) notificationEP() *EP {
	if !e.origin.passive || e.peer.Addr.UUID() != e.w.net.addr.UUID() {
		return e
	}
	if other := e.w.eps.Find(e.link.conn.RemoteEP()); other != nil && other.isLoopback() {
		return other
	}
	return e
}
