package tuple

import (
	"cmp"
	"slices"

	"github.com/gucx/gucx/ucp/internal/match"
)

// hold keeps a receive, in order, until the worker is not paused.
func (x *Receiver[R, M]) hold(n *match.Recv[R]) {
	x.w.Holds(n.Owner)
	order := x.w.Order(n.Owner)
	i, _ := slices.BinarySearchFunc(x.held, order, func(a *match.Recv[R], order uint64) int {
		return cmp.Compare(x.w.Order(a.Owner), order)
	})
	x.held = slices.Insert(x.held, i, n)
}

// Held is the first receive that waits until the worker is not paused; nil if none does.
func (x *Receiver[R, M]) Held() *match.Recv[R] {
	if len(x.held) == 0 {
		return nil
	}
	return x.held[0]
}

// Unhold takes a receive out that waits, and reports whether it does.
func (x *Receiver[R, M]) Unhold(n *match.Recv[R]) bool {
	i := slices.Index(x.held, n)
	if i < 0 {
		return false
	}
	x.held = slices.Delete(x.held, i, i+1)
	return true
}

// handCertain gives messages that are there to receives that wait, where no other can come
// between them. What they take is credit, without which a sender could not send again what it
// has taken back, and the pause would not end; and one sender that tells nothing does not hold
// up what others send.
func (x *Receiver[R, M]) handCertain() {
	for again := true; again; { // without the receive a message may be that of the next one
		again = false
		for n := range x.tags.Messages() {
			again = x.handIfCertain(n) || again
		}
	}
}

// handIfCertain gives a message to the first receive that waits for it, and reports true, if
// that is certain to be the one that gets it.
func (x *Receiver[R, M]) handIfCertain(u *match.Msg[M]) bool {
	if !x.paused {
		return false
	}
	i := x.firstHeld(u)
	if i < 0 || !x.certain(u, x.held[i].Tag, x.held[i].Mask) {
		return false
	}
	n := x.held[i]
	x.held = slices.Delete(x.held, i, i+1)
	x.tags.Remove(u)
	x.w.Give(u.Owner, n.Owner)
	return true
}

// firstHeld is the index of the first receive that waits which the message fits; -1 if there is
// none.
func (x *Receiver[R, M]) firstHeld(u *match.Msg[M]) int {
	return slices.IndexFunc(x.held, func(n *match.Recv[R]) bool { return fits(u, n.Tag, n.Mask) })
}

// fits reports that a receive of that tag and mask takes the message.
func fits[M any](u *match.Msg[M], tag, mask uint64) bool { return (u.Tag^tag)&mask == 0 }

// certain reports that of the messages of its sender that a receive fits this one is the
// first, by their places, and that no earlier receive which a queue has may get it.
func (x *Receiver[R, M]) certain(u *match.Msg[M], tag, mask uint64) bool {
	if t := x.in.find(u.Tag); t != nil && t.state == inStopping && t.posted > 0 {
		return false
	}
	s, at := x.w.Source(u.Owner), *x.w.Place(u.Owner)
	if mask != exactMask && s.hides(tag, mask) { // messages of one tag come in order
		return false
	}
	for b := s.conn.LastKept(); b != nil; b = x.w.Before(b.Owner) {
		if fits(b, tag, mask) && at.after(*x.w.Place(b.Owner)) {
			return false
		}
	}
	return true
}

// pause has all receives wait.
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

// resume posts the receives that waited, in order, once no queue is being closed.
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
}

// Probe is the message that a receive would get; nil if that is not certain yet. It has
// messages that wait for receives of a queue come the usual way, where a probe finds them.
func (x *Receiver[R, M]) Probe(tag, mask uint64) *match.Msg[M] {
	if !x.paused {
		x.closeFor(tag, mask, &x.stats.probes)
	}
	if !x.paused {
		return x.tags.Peek(tag, mask)
	}
	for n := range x.tags.Messages() {
		if fits(n, tag, mask) && x.certain(n, tag, mask) && x.firstHeld(n) < 0 {
			return n
		}
	}
	return nil
}
