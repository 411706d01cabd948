package ucp

import (
	"math"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// sendQueue is the state of a sender that has lacked credit for a tagged message.
//
// A sender without credit queues its messages (EP.waiting). If the receiver has posted receives
// that match none of its messages, it sends queries, and the sender offers the first queued message
// that matches a query, out of turn. An offered message remains at its position in the queue, and the
// later messages wait, until the receiver has matched or returned it. At most one message is
// offered at a time. See docs/design/0012-order.md.
type sendQueue struct {
	m    *messages
	tags match.Table[struct{}, *queuedTag] // the queued messages; no receives
	last *queuedTag
	next uint64 // number of the next message
	free *queuedTag

	offered     *queuedTag // the message that the receiver has not matched or returned yet; may be nil
	query       wire.Query // the query without a reply, unless Kind is QueryNone
	credits     uint64     // credits.got + 1 when the sender last reported that it is blocked
	blocked     bool       // the sender must report that it is blocked
	probed      bool       // the sender has replied to a probe with a message
	replyQueued bool       // a request will send the reply
}

// queuedTag is a message in a sendQueue.
type queuedTag struct {
	node       match.Msg[*queuedTag]
	r          *Request
	number     uint64 // increases along the queue
	prev, next *queuedTag
	offered    bool
}

// block is called when there is no credit for r, just before r is queued. If r is a tagged message,
// the sender reports once for each amount of credit that it is blocked.
func (m *messages) block(r *Request) {
	w := m.e.w
	if r.msg.ch.eagerID != wire.AMTag {
		return
	}
	q := m.tag.queue
	if q == nil {
		q = &sendQueue{m: m}
		q.tags.Init()
		m.tag.queue = q
		q.enterAll(r)
	}
	if q.credits != m.credits.got+1 {
		q.credits, q.blocked = m.credits.got+1, true
		w.schedule(m.e)
	}
}

// enterAll enters all waiting messages. r may be nil. If it is r's turn, r precedes the
// messages that were not tried yet.
func (q *sendQueue) enterAll(r *Request) {
	x := q.m.e.waiting
	if x != nil {
		for _, w := range x.Deferred() {
			q.enter(w)
		}
	}
	if r != nil && r.flags&reqDequeued != 0 {
		q.enter(r)
	}
	if x != nil {
		for _, w := range x.Pending() {
			q.enter(w)
		}
	}
}

// enter enters a waiting request if it is a tagged message and is not in the queue yet. q may be
// nil.
func (q *sendQueue) enter(r *Request) {
	if q == nil || r.msg == nil || r.msg.ch.eagerID != wire.AMTag || r.msg.queued != nil {
		return
	}
	t := q.free
	if t == nil {
		t = &queuedTag{}
		t.node.Owner = t
	} else {
		q.free = t.next
	}
	q.next++
	t.node.Tag, t.r, t.number = r.msg.word, r, q.next
	t.prev, t.next = q.last, nil
	if q.last != nil {
		q.last.next = t
	}
	q.last, r.msg.queued = t, t
	q.tags.Keep(&t.node)
	if q.blocked || q.query.Kind == wire.QueryList {
		q.m.e.w.schedule(q.m.e)
	}
}

// renumber gives all messages new numbers in their order, after messages were inserted among those that wait: for the receiver
// all of them are new. q may be nil.
func (q *sendQueue) renumber() {
	if q == nil {
		return
	}
	q.last = nil
	for r := range q.m.e.ops.all {
		if r.msg == nil || r.msg.queued == nil {
			continue
		}
		t := r.msg.queued
		q.next++
		t.number, t.prev, t.next = q.next, q.last, nil
		if q.last != nil {
			q.last.next = t
		}
		q.last = t
		q.tags.Remove(&t.node)
		q.tags.Keep(&t.node)
	}
	q.canceled()
	if q.replies() {
		q.m.e.w.schedule(q.m.e)
	}
}

// remove removes a message that no longer waits.
func (q *sendQueue) remove(t *queuedTag) {
	if q.offered == t {
		q.offered = nil
	}
	q.tags.Remove(&t.node)
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		q.last = t.prev
	}
	if t.prev != nil {
		t.prev.next = t.next
	}
	t.r.msg.queued = nil
	t.r, t.offered = nil, false
	t.prev, t.next, q.free = nil, q.free, t
}

// enterQueue is called when a message starts to wait. Later messages wait behind it.
func (r *Request) enterQueue() {
	m := r.ep.msgs
	m.unbind()
	m.tag.queue.enter(r)
}

// chooseTag is chooseSend for a tagged message. It does not change the stage of an offered message.
func (r *Request) chooseTag() {
	if !r.isOffered() {
		r.chooseSend()
	}
}

// admitTag is admitted for a tagged message. If there is no credit, the receiver gets a report that
// the sender is blocked.
func (r *Request) admitTag() bool {
	m := r.ep.msgs
	switch {
	case r.isOffered():
		return false
	case !r.admitted():
		m.block(r)
		return false
	}
	m.dequeue(r)
	if x := r.worker.tag.matcher; x != nil {
		x.admitted(r)
	}
	return true
}

// requestTagDrop is requestDrop for a tagged message. If the message is offered, the cancellation completes when the
// receiver has returned the message.
func (r *Request) requestTagDrop() bool {
	if r.isOffered() {
		r.msg.recalls = true
		return true
	}
	return r.requestDrop()
}

// leaveQueue is called when a message stops waiting before its turn.
func (r *Request) leaveQueue() {
	if m := r.ep.msgs; r.msg != nil && r.msg.queued != nil {
		m.dequeue(r)
		m.tag.queue.canceled()
	}
}

// dequeue removes a request that no longer waits from the queue.
func (m *messages) dequeue(r *Request) {
	if t := r.msg.queued; t != nil {
		m.tag.queue.remove(t)
	}
}

// canceled is called when a message was removed before its turn. If the sender has replied to a
// probe with a message, it reports again that it is blocked, so that the receiver probes again.
func (q *sendQueue) canceled() {
	if q.probed {
		q.probed, q.blocked = false, true
		q.m.e.w.schedule(q.m.e)
	}
}

// isOffered reports whether r is a message whose offer the receiver has not replied to.
func (r *Request) isOffered() bool {
	return r != nil && r.msg != nil && r.msg.queued != nil && r.msg.queued.offered
}

// bound returns the first message number that must not be offered. Messages from this number on would overtake an active
// message, stream data, a fence, or a message that waits for something other than credit.
func (q *sendQueue) bound() uint64 {
	e := q.m.e
	switch {
	case e.fence.barrier != nil || e.waiting.unsorted || q.m.sending != nil:
		return 1
	case e.waiting.ordered == q.tags.Unexpected() && e.fence.count == 0:
		return math.MaxUint64
	}
	hidden := false
	for _, r := range e.waiting.Pending() {
		switch queued := r.msg != nil && r.msg.queued != nil; {
		case queued && hidden:
			return r.msg.queued.number
		case !queued:
			hidden = hidden || r.stage.inOrder || r.stage.fence
		}
	}
	return math.MaxUint64
}

// reply sends the report and the reply that are due. If the lane has no resources, a request sends
// them later. q may be nil.
func (q *sendQueue) reply() {
	if !q.replies() || q.replyQueued || q.m.e.waiting.isReplaying() {
		return
	}
	e := q.m.e
	x := e.lane(wireup.AM)
	if x == nil || e.closing.aborting != ucs.StatusOK || e.state > epClosing {
		return
	}
	if q.post(x) == nil {
		return
	}
	r := e.w.newRequest(e, &replyStage)
	q.replyQueued = true
	r.answer()
}

// replies reports whether a report or a reply may be due.
func (q *sendQueue) replies() bool { return q != nil && (q.blocked || q.query.Kind != wire.QueryNone) }

// replyStage sends the report and the reply that are due when the lane has resources.
var replyStage = stage{
	name: "reply", role: wireup.AM, unfenced: true, completed: (*Request).replied,
	post: func(r *Request) error {
		if q := r.ep.msgs.tag.queue; q != nil {
			return q.post(r.stage.lane(r.ep))
		}
		return nil
	},
}

func (r *Request) replied() {
	if m := r.ep.msgs; m != nil && m.tag.queue != nil {
		m.tag.queue.replyQueued = false
	}
	r.answered()
}

// post sends the report and the reply that are due over the lane of active messages. It returns
// ErrNoResource if one of them could not be sent.
func (q *sendQueue) post(x *lane) error {
	if q.blocked {
		m := wire.Reply{Kind: wire.ReplyBlocked, Value: q.m.credits.got}
		if err := q.send(x, &m, nil); err != nil {
			return err
		}
		q.blocked = false
	}
	var err error
	switch q.query.Kind {
	case wire.QueryNone:
		return nil
	case wire.QueryList:
		return q.sendList(x)
	}
	m := wire.Reply{Kind: wire.ReplyNone, Number: q.query.Number}
	bound := q.bound()
	found := q.tags.Peek(q.query.Tag, q.query.Mask)
	switch {
	case found == nil || found.Owner.number > q.query.Limit || found.Owner.number >= bound:
		m.Value = min(q.next, bound-1)
		err = q.send(x, &m, nil)
	case q.query.Kind == wire.QueryProbe:
		q.probed = true
		m.Kind, m.Value = wire.ReplyProbe, found.Owner.number
		err = q.send(x, &m, []wire.Pair{{First: found.Tag, Second: uint64(found.Owner.r.total())}})
	default:
		err = q.offer(x, found.Owner)
	}
	if err == nil {
		q.query.Kind = wire.QueryNone
	}
	return err
}

func (q *sendQueue) send(x *lane, m *wire.Reply, pairs []wire.Pair) error {
	w := q.m.e.w
	m.EP = q.m.e.link.conn.MessageEP()
	w.msg.b = m.Append(w.msg.b[:0])
	for _, p := range pairs {
		w.msg.b = p.Append(w.msg.b)
	}
	_, err := x.AM.AMBcopy(wire.AMReply, &w.msg)
	return err
}

// sendList sends numbers and tags of queued messages, from the first one after query.Limit, if
// there are any.
func (q *sendQueue) sendList(x *lane) error {
	bound := q.bound()
	t := q.last
	if t == nil || t.number <= q.query.Limit {
		return nil
	}
	for t.prev != nil && t.prev.number > q.query.Limit {
		t = t.prev
	}
	var pairs [wire.MaxPairs]wire.Pair
	n, most := 0, min(len(pairs), (x.Iface.attr.AM.MaxBcopy-wire.ReplyLen)/wire.PairLen)
	for ; t != nil && n < most && t.number < bound; t = t.next {
		pairs[n] = wire.Pair{First: t.number, Second: t.node.Tag}
		n++
	}
	if n == 0 {
		return nil
	}
	err := q.send(x, &wire.Reply{Kind: wire.ReplyList, Number: q.query.Number}, pairs[:n])
	if err == nil {
		q.query.Kind = wire.QueryNone
	}
	return err
}

// offer sends an offer of a message, out of turn. It consumes no credit: the receiver stores
// nothing of the message.
func (q *sendQueue) offer(x *lane, t *queuedTag) error {
	r, w := t.r, q.m.e.w
	r.assignID()
	o := wire.Offer{EP: r.ep.link.conn.MessageEP(), Query: q.query.Number, Message: t.number, Tag: r.msg.word}
	rts := r.rts(x.Iface.attr.AM.MaxBcopy - wire.OfferLen - wire.RTSLen)
	w.msg.b = rts.Append(o.Append(w.msg.b[:0]))
	if _, err := x.AM.AMBcopy(wire.AMOffer, &w.msg); err != nil {
		r.unannounce()
		return err
	}
	q.offered, t.offered = t, true
	r.stage = &r.msg.ch.announce
	r.flags |= reqPosted
	r.comp.Count++ // for the reply of the peer
	return nil
}

// unannounce releases the remote id and the registration that the RTS contained.
func (r *Request) unannounce() {
	r.worker.pool.remote.Remove(r.remote)
	r.remote = 0
	if l := r.cached; l != nil {
		r.cached, r.mem = nil, nil
		l.release()
	}
}

// matched is called when the receiver has matched the offered message. From then on it is
// a rendezvous message like any other, and the later messages continue.
func (q *sendQueue) matched() {
	t := q.offered
	if t == nil {
		return
	}
	r, e := t.r, q.m.e
	e.w.stats.announcedBy(r)
	r.comp.Count--
	r.msg.recalls = false // the receive matched before the cancel
	e.dequeueWaiting(r)
	r.unsent()
	r.awaitPeer()
	r.posted()
	e.replayQueued()
}

// acceptOffer is called when the peer replies to an RTS. If the message is offered, the reply means
// that it was matched. It reports false if the message is not offered.
func (r *Request) acceptOffer() bool {
	if !r.isOffered() {
		return false
	}
	r.ep.msgs.tag.queue.matched()
	return true
}

// returned is called when the receiver returns the offered message because it has no matching
// receive any more.
func (q *sendQueue) returned() {
	t := q.offered
	if t == nil {
		return
	}
	r, e := t.r, q.m.e
	q.offered, t.offered = nil, false
	r.comp.Count--
	r.flags &^= reqPosted
	r.unannounce()
	r.stage = &r.msg.ch.send
	if r.msg.recalls || r.flags&reqGivenUp != 0 {
		e.dequeueWaiting(r)
		r.unsent()
		r.complete(ucs.StatusCanceled)
	}
	e.replayQueued()
}

// handleQuery handles a query of the receiver. Each query also says whether the receiver has
// matched or returned the offered message.
func (w *Worker) handleQuery(data []byte, _ uct.Desc) bool {
	var c wire.Query
	if !c.Unpack(data) {
		w.stats.badMessages.Inc()
		return false
	}
	e := w.connected(c.EP)
	if e == nil || e.msgs == nil || e.msgs.tag.queue == nil || e.closing.aborting != ucs.StatusOK {
		w.stats.badMessages.Inc()
		return false
	}
	q := e.msgs.tag.queue
	q.query.Kind = wire.QueryNone
	if c.Returned {
		q.returned()
	} else {
		q.matched()
	}
	if e.msgs.tag.queue == q && c.Kind != wire.QueryNone {
		q.query = c
		q.reply()
	}
	return false
}
