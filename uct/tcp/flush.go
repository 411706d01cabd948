package tcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct"
)

// Flush implements uct.EP.
func (e *EP) Flush(c *uct.Completion) (bool, error) {
	if e.state != epReady {
		return false, e.err
	}
	if e.stripes > 0 {
		return e.flushStriped(c)
	}
	if e.sent <= e.conn.acked {
		return false, nil
	}
	if c == nil {
		if last := e.conn.awaits.last; last != nil && last.kind == opFlush && last.seq >= e.sent {
			return true, nil
		}
	}
	return true, e.conn.flushAsk(e, c)
}

// flushAsk asks the peer to tell when everything sent so far is executed. e may
// be nil.
func (c *conn) flushAsk(e *EP, comp *uct.Completion) error {
	const whole = frameLen + flushLen
	it := c.it
	if it.ops.left == 0 || c.awaits.n >= maxAnswers {
		return uct.ErrNoResource
	}
	b := c.tx.take(whole)
	if b == nil {
		if b = c.room(whole); b == nil {
			return uct.ErrNoResource
		}
	}
	putHeader(b, frameFlush, 0, flushLen)
	binary.LittleEndian.PutUint64(b[frameLen:], c.sent)
	o := it.ops.get()
	o.ep, o.comp, o.kind, o.seq = e, comp, opFlush, c.sent
	c.awaits.push(o)
	c.posted(whole)
	return nil
}

// Flush implements uct.Iface.
func (it *Iface) Flush(c *uct.Completion) (bool, error) {
	all := it.known.All()
	busy := countBusy(all)
	if busy == 0 {
		return false, nil
	}
	if c == nil {
		return true, it.flushPoll()
	}
	return it.flushAll(all, nil, c, busy)
}

// countBusy is the number of connections with requests of which it is not known
// that they were executed.
func countBusy(all []*conn) (n int) {
	for _, k := range all {
		if k.sent > k.acked {
			n++
		}
	}
	return n
}

// flushPoll sees to it that every connection will hear of everything sent.
func (it *Iface) flushPoll() error {
	for _, k := range it.known.All() {
		last := k.awaits.last
		if k.sent == k.acked || last != nil && last.kind == opFlush && last.seq == k.sent {
			continue
		}
		if err := k.flushAsk(nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// flushAll asks on every busy connection of all, or on none, for e, which may be
// nil.
func (it *Iface) flushAll(all []*conn, e *EP, c *uct.Completion, busy int) (bool, error) {
	if it.ops.left < busy {
		return false, uct.ErrNoResource
	}
	for _, k := range all {
		if k.sent > k.acked && (k.awaits.n >= maxAnswers || k.room(frameLen+flushLen) == nil) {
			return false, uct.ErrNoResource
		}
	}
	g := it.groups.get(c, busy)
	for _, k := range all {
		if k.sent > k.acked {
			// It has been made sure that there is room.
			if err := k.flushAsk(e, &g.Completion); err != nil {
				g.Completion.Count--
			}
		}
	}
	return true, nil
}

// Fence implements uct.Iface.
func (it *Iface) Fence() error {
	for _, k := range it.known.All() {
		for _, e := range k.eps.All() {
			if e.state == epReady {
				e.raiseFence()
			}
		}
	}
	return nil
}

// flushGroup completes a caller's completion when several flushes have ended.
type flushGroup struct {
	uct.Completion
	user  *uct.Completion
	owner *flushGroups
}

// flushGroups keeps those that are free, so that flushing does not allocate once
// it has.
type flushGroups struct{ free []*flushGroup }

func (l *flushGroups) get(user *uct.Completion, count int) *flushGroup {
	var g *flushGroup
	if last := len(l.free) - 1; last >= 0 {
		g = l.free[last]
		l.free = l.free[:last]
	} else {
		g = &flushGroup{owner: l}
		g.Func = g.ended
	}
	g.user, g.Count, g.Status = user, count, 0
	return g
}

func (g *flushGroup) ended(*uct.Completion) {
	user, st := g.user, g.Status
	g.user = nil
	g.owner.free = append(g.owner.free, g)
	user.Complete(st)
}
