package tuple

import (
	"cmp"
	"slices"

	"github.com/gucx/gucx/ucp/internal/match"
)

// hold queues a receive, in order, until the worker is no longer paused.
func (x *Receiver[R, M]) hold(n *match.Recv[R]) {
	x.w.Holds(n.Owner)
	order := x.w.Order(n.Owner)
	i, _ := slices.BinarySearchFunc(x.held, order, func(a *match.Recv[R], order uint64) int {
		return cmp.Compare(x.w.Order(a.Owner), order)
	})
	x.held = slices.Insert(x.held, i, n)
}

// Held returns the first receive that waits for the end of the pause; nil if there is none.
func (x *Receiver[R, M]) Held() *match.Recv[R] {
	if len(x.held) == 0 {
		return nil
	}
	return x.held[0]
}

// Unhold removes a held receive. It returns false if the receive is not held.
func (x *Receiver[R, M]) Unhold(n *match.Recv[R]) bool {
	i := slices.Index(x.held, n)
	if i < 0 {
		return false
	}
	x.held = slices.Delete(x.held, i, i+1)
	return true
}

// deliverDecided matches messages that have arrived with held receives, where no other message can precede
// them. So a sender that sends no control message does not block the messages of others that have arrived. The end of the pause
// needs no credit: the sender has withheld that of the messages which it sends again before RESENT.
func (x *Receiver[R, M]) deliverDecided() {
	for again := true; again; { // the next receive may match a message that this one did not
		again = false
		for n := range x.tags.Messages() {
			again = x.deliverIfDecided(n) || again
		}
	}
}

// deliverIfDecided matches a message with the first held receive that it fits, and returns true, if
// no other message can be the one for that receive.
func (x *Receiver[R, M]) deliverIfDecided(u *match.Msg[M]) bool {
	if !x.paused {
		return false
	}
	i := x.firstHeld(u)
	if i < 0 || !x.isDecided(u, x.held[i].Tag, x.held[i].Mask) {
		return false
	}
	n := x.held[i]
	x.held = slices.Delete(x.held, i, i+1)
	x.tags.Remove(u)
	x.w.Deliver(u.Owner, n.Owner)
	return true
}

// firstHeld returns the index of the first held receive that matches the message; -1 if there is
// none.
func (x *Receiver[R, M]) firstHeld(u *match.Msg[M]) int {
	return slices.IndexFunc(x.held, func(n *match.Recv[R]) bool { return fits(u, n.Tag, n.Mask) })
}

// fits reports whether a receive of that tag and mask matches the message.
func fits[M any](u *match.Msg[M], tag, mask uint64) bool { return (u.Tag^tag)&mask == 0 }

// isDecided reports whether the message is the first of its sender that matches a receive,
// by their places, and no earlier receive of a queue may get it.
func (x *Receiver[R, M]) isDecided(u *match.Msg[M], tag, mask uint64) bool {
	if t := x.in.find(u.Tag); t != nil && t.state == inStopping && t.posted > 0 {
		return false
	}
	s, at := x.w.Source(u.Owner), *x.w.Place(u.Owner)
	if mask != exactMask && s.hides(tag, mask) { // messages of one tag arrive in order
		return false
	}
	for b := s.conn.LastUnexpected(); b != nil; b = x.w.Before(b.Owner) {
		if fits(b, tag, mask) && at.After(*x.w.Place(b.Owner)) {
			return false
		}
	}
	return true
}

// pause holds all receives.
func (x *Receiver[R, M]) pause() {
	if x.paused {
		return
	}
	x.paused = true
	for n := range x.tags.Receives() {
		x.tags.Cancel(n)
		x.hold(n)
	}
}

// resume posts the held receives, in order, when no queue is being closed any more.
func (x *Receiver[R, M]) resume() {
	if !x.paused || x.closing > 0 {
		return
	}
	x.paused = false
	held := x.held
	x.held = nil
	for _, n := range held {
		x.Admit(n)
	}
	if !x.paused {
		x.w.Resumed()
	}
}

// Probe returns the message that a receive would match; nil if that is not certain yet. Messages
// that wait for receives of a queue are then sent the usual way (without a queue), so that a probe finds them.
func (x *Receiver[R, M]) Probe(tag, mask uint64) *match.Msg[M] {
	if !x.paused {
		x.closeFor(tag, mask, &x.stats.probes)
	}
	if !x.paused {
		return x.tags.Peek(tag, mask)
	}
	for n := range x.tags.Messages() {
		if fits(n, tag, mask) && x.isDecided(n, tag, mask) && x.firstHeld(n) < 0 {
			return n
		}
	}
	return nil
}
