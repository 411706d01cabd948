package ucp

import (
	"math"
	"slices"

	"github.com/gucx/gucx/ucp/internal/wire"
)

// queuedProbe is what is known of the message that a probe looks for and that a blocked peer may have
// queued.
type queuedProbe struct {
	tag, mask uint64
	number    uint64    // grows with each probe of the worker
	from      *messages // of the peer that has queued the message; nil: none is known
	info      TagInfo   // of the message
}

// maxQueuedProbes is how many different probes a worker remembers. One more replaces the oldest.
const maxQueuedProbes = 64

// probeBlocked looks for a message in the queues of blocked peers, for a probe that finds none here. It
// reports false as long as no peer has replied that it has one, or, with remove, has offered it.
func (w *Worker) probeBlocked(tag, mask uint64, remove bool) (*TagMessage, TagInfo, bool) {
	if len(w.tag.blocked) == 0 {
		return nil, TagInfo{}, false
	}
	for i := range w.tag.probes {
		p := &w.tag.probes[i]
		switch {
		case p.tag != tag || p.mask != mask:
		case p.from == nil:
			return nil, TagInfo{}, false
		case remove:
			if u := p.from.sender.remove(p); u != nil {
				return u, u.info(), true
			}
			return nil, TagInfo{}, false
		default:
			return nil, p.info, true
		}
	}
	if len(w.tag.probes) == maxQueuedProbes {
		w.tag.probes = slices.Delete(w.tag.probes, 0, 1)
	}
	w.tag.lastProbe++
	w.tag.probes = append(w.tag.probes, queuedProbe{tag: tag, mask: mask, number: w.tag.lastProbe})
	w.queryAll()
	return nil, TagInfo{}, false
}

// reservedRounds is how many rounds of Progress a message is reserved for a probe that is to remove it.
// The probe is called once more in that time, or the sender gets the message back.
const reservedRounds = 1000

// remove returns the message that a probe has found, if the sender has offered it. Otherwise it has the
// sender offer it, unless something else is under way.
func (b *blockedSender) remove(p *queuedProbe) *TagMessage {
	w := b.m.e.w
	switch {
	case b.reserved != nil && b.reservedFor == p.number:
		u := b.reserved
		b.reserved, b.unsettled = nil, true
		b.send()
		number := p.number
		w.forgetProbes(func(p *queuedProbe) bool { return p.number == number })
		b.compare()
		return u
	case b.reserved == nil && (b.query.Kind == wire.QueryNone || b.query.Kind == wire.QueryList) && w.tag.table.After(b.cursor) == nil:
		b.recv, b.listed, b.probing = nil, false, p.number
		b.startQuery(wire.Query{Kind: wire.QueryMatch, Tag: p.tag, Mask: p.mask, Limit: b.compared()})
	}
	return nil
}

// compared is the limit for a message that no pending receive fits.
func (b *blockedSender) compared() uint64 {
	if b.m.e.w.tag.table.Expects() {
		return b.end
	}
	return math.MaxUint64
}

// reserve keeps a message that was offered for a probe.
func (b *blockedSender) reserve(rts *wire.RTS, tag uint64) {
	e := b.m.e
	w := e.w
	a := newAnnounced(e, rts)
	b.query.Kind = wire.QueryNone
	b.reserved, b.reservedFor, b.rounds = w.newAnnouncedTag(e, tag, a), b.probing, 0
	b.reserved.uncharged = true
	w.schedule(e)
}

// returnReserved returns the reserved message to its sender, if there is one. b may be nil.
func (b *blockedSender) returnReserved() {
	if b == nil {
		return
	}
	if u := b.reserved; u != nil {
		b.reserved, b.returned, b.unsettled = nil, true, true
		u.rndv.free()
		u.free()
		b.send()
	}
}

// expireReserved returns a reserved message that no probe has removed in time. b may be nil.
func (b *blockedSender) expireReserved() {
	if b == nil || b.reserved == nil {
		return
	}
	if b.rounds++; b.rounds < reservedRounds {
		b.m.e.w.schedule(b.m.e)
		return
	}
	number := b.reservedFor
	b.m.e.w.forgetProbes(func(p *queuedProbe) bool { return p.number == number })
	b.returnReserved()
	b.compare()
}

// nextProbe is the first probe after a number for which no message is known; nil if there is none.
func (w *Worker) nextProbe(after uint64) *queuedProbe {
	for i := range w.tag.probes {
		if p := &w.tag.probes[i]; p.number > after && p.from == nil {
			return p
		}
	}
	return nil
}

// forgetProbes drops the probes for which drop is true.
func (w *Worker) forgetProbes(drop func(p *queuedProbe) bool) {
	w.tag.probes = slices.DeleteFunc(w.tag.probes, func(p queuedProbe) bool { return drop(&p) })
}

// receivePosted is called when a receive was posted that matches nothing which has arrived. It may match
// what a probe has found or is about to find.
func (w *Worker) receivePosted(tag, mask uint64) {
	if len(w.tag.blocked) == 0 {
		return
	}
	w.forgetProbes(func(p *queuedProbe) bool {
		if p.from != nil {
			return (p.info.Tag^tag)&mask == 0
		}
		return (p.tag^tag)&p.mask&mask == 0
	})
	for _, b := range w.tag.blocked {
		if u := b.reserved; u != nil && (u.node.Tag^tag)&mask == 0 {
			b.returnReserved()
		}
	}
	w.queryAll()
}

// probed takes the reply to a probe.
func (b *blockedSender) probed(pairs []byte) {
	w := b.m.e.w
	pair, _ := wire.UnpackPair(pairs)
	b.query.Kind, b.probe = wire.QueryNone, b.probing
	for i := range w.tag.probes {
		p := &w.tag.probes[i]
		if p.number == b.probing && p.from == nil && b.blocked && (p.tag^pair.First)&p.mask == 0 && b.m.e.w.maySend(b.m, pair.First) && pair.Second <= maxMessage {
			p.from, p.info = b.m, TagInfo{Tag: pair.First, Length: int(pair.Second), From: b.m.e}
		}
	}
}

// repeatProbes starts again from the first probe that fits a message with tag. The message was queued after
// the probe.
func (b *blockedSender) repeatProbes(tag uint64) {
	w := b.m.e.w
	for i := range w.tag.probes {
		if p := &w.tag.probes[i]; p.from == nil && p.number <= b.probe && (p.tag^tag)&p.mask == 0 {
			b.probe = p.number - 1
			return
		}
	}
}

// hasProbe reports whether the worker still has the probe of that number, and a message with tag fits it.
func (w *Worker) hasProbe(number, tag uint64) bool {
	return slices.ContainsFunc(w.tag.probes, func(p queuedProbe) bool { return p.number == number && (p.tag^tag)&p.mask == 0 })
}
