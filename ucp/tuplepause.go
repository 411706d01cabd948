package ucp

import (
	"cmp"
	"slices"

	"github.com/gucx/gucx/ucp/internal/match"
)

// tupleHeldStage is a receive that waits until the worker is not paused.
var tupleHeldStage = stage{
	name: "tag receive", sized: true, role: noRole, settled: (*Request).recvSettled,
	stop: func(r *Request) bool { return r.worker.tuples.unhold(r.recv) },
}

// hold keeps a receive, in order, until the worker is not paused.
func (x *tuples) hold(v *tagRecv) {
	v.req.stage = &tupleHeldStage
	i, _ := slices.BinarySearchFunc(x.held, v, func(a, b *tagRecv) int { return cmp.Compare(a.order, b.order) })
	x.held = slices.Insert(x.held, i, v)
}

// handCertain gives messages that are there to receives that wait, where no other can come
// between them. What they take is credit, without which a sender could not send again what it
// has taken back, and the pause would not end; and one sender that tells nothing does not hold
// up what others send.
func (x *tuples) handCertain() {
	for again := true; again; { // without the receive a message may be that of the next one
		again = false
		for n := range x.w.tags.Messages() {
			again = x.handIfCertain(n.Owner) || again
		}
	}
}

// handIfCertain gives a message to the first receive that waits for it, and reports true, if
// that is certain to be the one that gets it.
func (x *tuples) handIfCertain(u *TagMessage) bool {
	if !x.paused {
		return false
	}
	i := slices.IndexFunc(x.held, func(v *tagRecv) bool { return fits(u, v.node.Tag, v.node.Mask) })
	if i < 0 || !x.certain(u, x.held[i].node.Tag, x.held[i].node.Mask) {
		return false
	}
	v := x.held[i]
	x.held = slices.Delete(x.held, i, i+1)
	x.w.tags.Remove(&u.node)
	u.taken().hand(v)
	return true
}

// fits reports that a receive of that tag and mask takes the message.
func fits(u *TagMessage, tag, mask uint64) bool { return (u.node.Tag^tag)&mask == 0 }

// certain reports that of the messages of its sender that a receive fits this one is the
// first, and that no earlier receive which a queue has may get it.
func (x *tuples) certain(u *TagMessage, tag, mask uint64) bool {
	if t := x.in.find(u.node.Tag); t != nil && t.state == inStopping && t.posted > 0 {
		return false
	}
	if mask != exactMask && u.msgs.tuple.hides(tag, mask) { // messages of one tag come in order
		return false
	}
	for b := u.prev; b != nil; b = b.prev {
		if fits(b, tag, mask) {
			return false
		}
	}
	return true
}

// hides reports that the peer may have sent messages before those that are here which come
// through a queue, or were taken out of it and are to be sent again, and which a receive
// of that tag and mask fits.
func (l *tupleLink) hides(tag, mask uint64) bool {
	return slices.ContainsFunc(l.in, func(t *inTuple) bool { return t.state >= inOpen && (t.tag^tag)&mask == 0 })
}

// unhold takes a receive out that is held.
func (x *tuples) unhold(v *tagRecv) bool {
	i := slices.Index(x.held, v)
	if i < 0 {
		return false
	}
	x.held = slices.Delete(x.held, i, i+1)
	return true
}

// pause has all receives wait.
func (x *tuples) pause() {
	if x.paused {
		return
	}
	x.paused = true
	for n := range x.w.tags.Receives() {
		x.w.tags.Cancel(n)
		x.hold(n.Owner)
	}
}

// resume posts the receives that waited, in order, once no queue is being closed.
func (x *tuples) resume() {
	if !x.paused || x.closing > 0 {
		return
	}
	x.paused = false
	held := x.held
	x.held = nil
	for _, v := range held {
		x.admit(v)
	}
}

// probe is the message that a receive would get; nil if that is not certain yet. It has
// messages that wait for receives of a queue come the usual way, where a probe finds them.
func (x *tuples) probe(tag, mask uint64) *match.Msg[*TagMessage] {
	if !x.paused {
		x.closeFor(tag, mask, &x.stats.probes)
	}
	if !x.paused {
		return x.w.tags.Peek(tag, mask)
	}
	for n := range x.w.tags.Messages() {
		u := n.Owner
		if fits(u, tag, mask) && x.certain(u, tag, mask) &&
			!slices.ContainsFunc(x.held, func(v *tagRecv) bool { return fits(u, v.node.Tag, v.node.Mask) }) {
			return n
		}
	}
	return nil
}
