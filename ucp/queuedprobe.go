package ucp

import (
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
// reports false as long as no peer has replied that it has one.
func (w *Worker) probeBlocked(tag, mask uint64) (TagInfo, bool) {
	if len(w.blocked) == 0 {
		return TagInfo{}, false
	}
	for i := range w.probes {
		if p := &w.probes[i]; p.tag == tag && p.mask == mask {
			return p.info, p.from != nil
		}
	}
	if len(w.probes) == maxQueuedProbes {
		w.probes = slices.Delete(w.probes, 0, 1)
	}
	w.lastProbe++
	w.probes = append(w.probes, queuedProbe{tag: tag, mask: mask, number: w.lastProbe})
	w.queryAll()
	return TagInfo{}, false
}

// nextProbe is the first probe after a number for which no message is known; nil if there is none.
func (w *Worker) nextProbe(after uint64) *queuedProbe {
	for i := range w.probes {
		if p := &w.probes[i]; p.number > after && p.from == nil {
			return p
		}
	}
	return nil
}

// forgetProbes drops the probes for which drop is true.
func (w *Worker) forgetProbes(drop func(p *queuedProbe) bool) {
	w.probes = slices.DeleteFunc(w.probes, func(p queuedProbe) bool { return drop(&p) })
}

// receivePosted is called when a receive was posted that matches nothing which has arrived. It may match
// what a probe has found or is about to find.
func (w *Worker) receivePosted(tag, mask uint64) {
	if len(w.blocked) == 0 {
		return
	}
	w.forgetProbes(func(p *queuedProbe) bool {
		if p.from != nil {
			return (p.info.Tag^tag)&mask == 0
		}
		return (p.tag^tag)&p.mask&mask == 0
	})
	w.queryAll()
}

// probed takes the reply to a probe.
func (b *blockedSender) probed(pairs []byte) {
	w := b.m.e.w
	pair, _ := wire.UnpackPair(pairs)
	b.query.Kind, b.probe = wire.QueryNone, b.asked
	for i := range w.probes {
		p := &w.probes[i]
		if p.number == b.asked && p.from == nil && b.blocked && (p.tag^pair.First)&p.mask == 0 && pair.Second <= maxMessage {
			p.from, p.info = b.m, TagInfo{Tag: pair.First, Length: int(pair.Second), From: b.m.e}
		}
	}
}

// listedForProbe has the probes be repeated that a message fits which was queued meanwhile.
func (b *blockedSender) listedForProbe(tag uint64) {
	w := b.m.e.w
	for i := range w.probes {
		if p := &w.probes[i]; p.from == nil && p.number <= b.probe && (p.tag^tag)&p.mask == 0 {
			b.probe = p.number - 1
			return
		}
	}
}
