package ucp

import (
	"math"
	"slices"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// blockedSender is the receiver's state for a peer that queues tagged messages because it lacks
// credit.
//
// The receiver compares its posted receives with the messages in the peer's queue, one query at a time. The receives up to
// cursor were compared with the messages up to end, and none of them match. So for the next receive, after cursor, the
// first message up to end that matches it is the right one: no earlier receive matches that message. A message after end is
// for the first of the receives up to cursor that it matches.
type blockedSender struct {
	m       *messages
	blocked bool // the peer has no credit, and gets none until a message is received; the sender is in Worker.tag.blocked

	cursor uint64 // number of a receive, in Worker.tag.table
	end    uint64 // number of a message, in the peer's queue
	listed uint64 // number of the last message that was listed; used only if there is a tagMatcher

	query       wire.Query            // the latest query; Kind is QueryNone after its reply
	probe       uint64                // number of the newest probe that was compared with all messages up to end
	probing     uint64                // number of the probe that the latest query is for
	recv        *match.Recv[*tagRecv] // receive that the latest query is for; nil for a probe
	reserved    *TagMessage           // message that was offered for a probe, and not removed yet; nil if there is none
	reservedFor uint64                // number of that probe
	rounds      int                   // rounds of Progress since it was offered
	seq         uint64                // number of recv
	fromList    bool                  // recv is not behind cursor, and message query.Limit was listed
	returned    bool                  // the next query returns the offered message, which matches nothing
	unsettled   bool                  // the peer does not know yet whether the offered message has matched
	unsent      bool                  // query has not been sent
	queued      bool                  // a request will send the query
}

// block records that the peer has no credit.
func (w *Worker) block(m *messages) {
	b := m.tag.sender
	if b == nil {
		b = &blockedSender{m: m}
		m.tag.sender = b
	}
	if !b.blocked {
		b.blocked = true
		w.tag.blocked = append(w.tag.blocked, b)
		w.tag.slowTagRecv = true
	} else { // the probed message may have left the queue
		w.forgetProbes(func(p *queuedProbe) bool { return p.from == m })
	}
	b.compare()
}

// unblock stops the queries, because the peer gets credit or is gone. b may be nil.
func (b *blockedSender) unblock() {
	if b == nil || !b.blocked {
		return
	}
	w := b.m.e.w
	b.returnReserved()
	b.blocked = false
	b.listed = 0 // queues may open meanwhile
	w.forgetProbes(func(p *queuedProbe) bool { return p.from == b.m || len(w.tag.blocked) == 1 })
	i := slices.Index(w.tag.blocked, b)
	w.tag.blocked = slices.Delete(w.tag.blocked, i, i+1)
	w.tag.slowTagRecv = len(w.tag.blocked) > 0 || w.closed || w.tag.matcher != nil
}

// othersBlocked reports whether a peer other than that of m is blocked.
func (w *Worker) othersBlocked(m *messages) bool {
	return slices.ContainsFunc(w.tag.blocked, func(b *blockedSender) bool { return b.m != m })
}

// queryAll queries all blocked peers for a posted receive or probe that matches no message here.
func (w *Worker) queryAll() {
	for i := len(w.tag.blocked) - 1; i >= 0; i-- {
		w.tag.blocked[i].compare()
	}
}

// compare sends the next query, unless one is in flight.
func (b *blockedSender) compare() {
	w := b.m.e.w
	if !b.blocked || b.reserved != nil || w.tag.matcher != nil && w.tag.matcher.paused() || b.query.Kind == wire.QueryMatch || b.query.Kind == wire.QueryProbe {
		return
	}
	if r := w.tag.table.After(b.cursor); r != nil {
		limit := b.end
		if w.tag.table.First() == r { // no earlier receive can take a message
			limit = math.MaxUint64
		}
		b.fromList = false
		b.match(r, limit)
		return
	}
	if p := w.nextProbe(b.probe); p != nil {
		b.probing = p.number
		b.startQuery(wire.Query{Kind: wire.QueryProbe, Tag: p.tag, Mask: p.mask, Limit: b.compared()})
		return
	}
	limit, competes := b.end, w.tag.matcher != nil && w.tag.matcher.competes(b.m)
	if competes {
		limit = min(limit, b.listed)
	}
	if b.query.Kind == wire.QueryNone && (competes || w.tag.table.Expects() || w.nextProbe(0) != nil) {
		b.startQuery(wire.Query{Kind: wire.QueryList, Limit: limit})
	}
}

// match queries for a message for receive r with a number up to limit.
func (b *blockedSender) match(r *match.Recv[*tagRecv], limit uint64) {
	b.recv, b.seq = r, r.Seq()
	b.startQuery(wire.Query{Kind: wire.QueryMatch, Tag: r.Tag, Mask: r.Mask, Limit: limit})
}

// startQuery sends a query in place of the previous one.
func (b *blockedSender) startQuery(q wire.Query) {
	q.Number = b.query.Number + 1
	if q.Number == 0 {
		q.Number = 1
	}
	b.query, b.unsent = q, true
	b.send()
}

// send sends the unsent query. If the lane has no resources, a request sends it later.
func (b *blockedSender) send() {
	e := b.m.e
	if b.queued || e.closing.aborting != ucs.StatusOK || !e.receives() {
		return
	}
	if x := e.lane(wireup.AM); x != nil && x.Connected && b.post(x) == nil {
		return
	}
	r := e.w.newRequest(e, &queryStage)
	b.queued = true
	r.answer()
}

// queryStage sends the unsent query when the lane has resources.
var queryStage = stage{
	name: "query", role: wireup.AM, unfenced: true, completed: (*Request).queried,
	post: func(r *Request) error {
		if m := r.ep.msgs; m != nil && m.tag.sender != nil {
			return m.tag.sender.post(r.stage.lane(r.ep))
		}
		return nil
	},
}

func (r *Request) queried() {
	if m := r.ep.msgs; m != nil && m.tag.sender != nil {
		m.tag.sender.queued = false
	}
	r.answered()
}

// post sends the unsent query, or the result of the latest offer, over the lane of active messages.
func (b *blockedSender) post(x *lane) error {
	if !b.unsent && !b.unsettled {
		return nil
	}
	e := b.m.e
	q := b.query
	q.EP, q.Returned = e.link.conn.MessageEP(), b.returned
	e.w.msg.b = q.Append(e.w.msg.b[:0])
	_, err := x.AM.AMBcopy(wire.AMQuery, &e.w.msg)
	if err == nil {
		b.unsent, b.unsettled, b.returned = false, false, false
	}
	return err
}

// handleReply handles a report or reply of a peer about its queue.
func (w *Worker) handleReply(data []byte, _ uct.Desc) bool {
	var c wire.Reply
	pairs, ok := c.Unpack(data)
	e := (*EP)(nil)
	if ok {
		e = w.connected(c.EP)
	}
	if e == nil || !e.messaging().replied(&c, pairs) {
		w.stats.badMessages.Inc()
	}
	return false
}

// replied handles a reply of the peer. It reports false for a reply that violates the protocol.
func (m *messages) replied(c *wire.Reply, pairs []byte) bool {
	e, b := m.e, m.tag.sender
	if !e.receives() {
		return true
	}
	if c.Kind == wire.ReplyBlocked {
		if c.Value == m.credits.sent { // otherwise credit is in flight
			e.w.block(m)
		}
		return true
	}
	if b == nil || c.Number == 0 || b.query.Number-c.Number > math.MaxInt32 {
		return false
	}
	if c.Number != b.query.Number || b.query.Kind == wire.QueryNone { // a later query has replaced it
		return true
	}
	switch {
	case c.Kind == wire.ReplyNone && b.query.Kind == wire.QueryMatch && b.recv == nil:
		b.query.Kind = wire.QueryNone
		e.w.forgetProbes(func(p *queuedProbe) bool { return p.number == b.probing })
	case c.Kind == wire.ReplyNone && b.query.Kind == wire.QueryMatch:
		b.advance(c.Value, true)
	case c.Kind == wire.ReplyNone && b.query.Kind == wire.QueryProbe:
		b.query.Kind, b.probe = wire.QueryNone, b.probing
		if b.query.Limit == math.MaxUint64 {
			b.end = c.Value
		}
	case c.Kind == wire.ReplyProbe && b.query.Kind == wire.QueryProbe:
		b.probed(pairs)
	case c.Kind == wire.ReplyList && b.query.Kind == wire.QueryList:
		b.query.Kind = wire.QueryNone
		if b.compareList(pairs) {
			return true
		}
	default:
		return false
	}
	b.compare()
	return true
}

// advance processes the result of a query for a receive. last is the number of the last message in
// the peer's queue. compared is false if the receive was complete already, so that the matching
// message is still in the queue.
func (b *blockedSender) advance(last uint64, compared bool) {
	b.query.Kind = wire.QueryNone
	limit := b.query.Limit
	switch {
	case b.fromList && !compared:
		return // the message may fit another receive
	case b.fromList:
		b.end = limit
	case limit == math.MaxUint64:
		b.end = last
	}
	b.cursor = max(b.cursor, b.seq)
}

// compareList compares listed messages with the receives up to cursor. It reports whether it has
// sent a query.
func (b *blockedSender) compareList(pairs []byte) bool {
	w := b.m.e.w
	for len(pairs) > 0 && b.blocked {
		var p wire.Pair
		p, pairs = wire.UnpackPair(pairs)
		if w.tag.matcher != nil && p.First > b.listed {
			b.listed = p.First
			w.tag.matcher.listed(b.m, p.Second)
		}
		if p.First <= b.end {
			continue
		}
		if r := w.tag.table.Find(p.Second); r != nil && r.Seq() <= b.cursor {
			b.fromList = true
			b.match(r, p.First)
			return true
		}
		b.end = p.First
		b.repeatProbes(p.Second)
	}
	return false
}

// handleOffer handles a message that its sender offers out of turn. It is for the receive or probe
// of the latest query. If that receive is already complete, the next query returns the message.
func (w *Worker) handleOffer(data []byte, _ uct.Desc) bool {
	var o wire.Offer
	var p wire.RTS
	rest, ok := o.Unpack(data)
	if ok {
		rest, ok = p.Unpack(rest)
	}
	if !ok || len(rest) != 0 || p.ID == 0 || p.Length > maxMessage {
		w.stats.badMessages.Inc()
		return false
	}
	e := w.sender(o.EP)
	if e == nil {
		return false
	}
	if e.msgs == nil || !e.msgs.tag.sender.isOffer(&o) {
		w.stats.badMessages.Inc()
		return false
	}
	b := e.msgs.tag.sender
	r := b.recv
	if r == nil {
		b.reserve(&p, o.Tag)
		if !w.hasProbe(b.probing, o.Tag) || !b.blocked {
			b.returnReserved()
			b.compare()
		}
		return false
	}
	b.unsettled = true
	matches := w.tag.table.Pending(r, b.seq)
	b.advance(o.Message, matches)
	if matches {
		w.tag.table.Cancel(r)
		a := announcedBy(e, &p)
		r.Owner.fetch(&a, o.Tag)
	} else {
		b.returned = true
	}
	if e.receives() && e.msgs == b.m {
		b.compare()
		b.send()
	}
	return false
}

// isOffer reports whether an offer replies to the latest query. b may be nil.
func (b *blockedSender) isOffer(o *wire.Offer) bool {
	return b != nil && b.query.Kind == wire.QueryMatch && o.Query == b.query.Number &&
		o.Message <= b.query.Limit && (o.Tag^b.query.Tag)&b.query.Mask == 0 && b.m.e.w.maySend(b.m, o.Tag)
}
