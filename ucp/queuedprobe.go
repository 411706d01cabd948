package ucp

import (
	"math"
	"slices"

	"github.com/gucx/gucx/ucp/internal/wire"
)

// queuedProbe is a probe that found no message here, and the message that a blocked peer has queued
// for it.
type queuedProbe struct {
	tag, mask uint64
	number    uint64    // increases with each probe of the worker
	from      *messages // of the peer that has queued the message; nil if no peer has reported one
	info      TagInfo   // of the message
}

// maxQueuedProbes is the maximum number of different probes that a worker stores. A further one
// replaces the oldest.
const maxQueuedProbes = 64

// probeBlocked looks in the queues of blocked peers for a probe that found no message here. It
// returns false until a peer has reported a message or, with remove, has offered it.
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
			if u := p.from.tag.sender.remove(p); u != nil {
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

// reservedRounds is the number of rounds of Progress for which a message is reserved for a probe with remove. If the program
// does not repeat the probe in that time, the message is returned to the sender.
const reservedRounds = 1000

// remove returns the message of a probe if the sender has offered it. Otherwise it queries for it,
// unless another query is in flight.
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
		b.recv, b.fromList, b.probing = nil, false, p.number
		b.startQuery(wire.Query{Kind: wire.QueryMatch, Tag: p.tag, Mask: p.mask, Limit: b.compared()})
	}
	return nil
}

// compared returns the limit of a query for a probe: messages up to it match no pending receive.
func (b *blockedSender) compared() uint64 {
	if b.m.e.w.tag.table.Expects() {
		return b.end
	}
	return math.MaxUint64
}

// reserve stores a message that was offered for a probe.
func (b *blockedSender) reserve(rts *wire.RTS, tag uint64) {
	e := b.m.e
	w := e.w
	a := newAnnounced(e, rts)
	b.query.Kind = wire.QueryNone
	b.reserved, b.reservedFor, b.rounds = w.newAnnouncedTag(e, tag, a), b.probing, 0
	b.reserved.uncharged = true
	w.schedule(e)
}

// returnReserved returns the reserved message to its sender. b may be nil.
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

// expireReserved returns a message that was reserved for too long. b may be nil.
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

// nextProbe returns the first probe with a number above after for which no message is known, or
// nil.
func (w *Worker) nextProbe(after uint64) *queuedProbe {
	for i := range w.tag.probes {
		if p := &w.tag.probes[i]; p.number > after && p.from == nil {
			return p
		}
	}
	return nil
}

// forgetProbes removes the probes for which drop returns true.
func (w *Worker) forgetProbes(drop func(p *queuedProbe) bool) {
	w.tag.probes = slices.DeleteFunc(w.tag.probes, func(p queuedProbe) bool { return drop(&p) })
}

// receivePosted is called when a posted receive matches no message here. It may match the message
// that a probe has found or will find.
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

// probed handles the reply to the probe query.
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

// repeatProbes makes the first probe that a listed message with this tag matches be queried again,
// because the message was queued after that probe was compared.
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
