package ucp

import (
	"fmt"

	"github.com/gucx/gucx/ucp/internal/tuple"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// tupleSource is the state of messages from one peer.
type tupleSource = tuple.Source[*tagRecv, *TagMessage]

// tupleLink is the state of an EP for tuple queues.
type tupleLink struct {
	x   *tuples
	m   *messages
	out tuple.Sender
	in  tupleSource

	requeued []*Request // messages of a closed queue that are going to wait
	released bool       // credit that messages in queues withheld, or canceled ones have used, was released, and other messages have not used it yet

	iface  *iface  // with the queues for the peer
	queues int     // number of queues
	sink   uct.IOV // tuples.sink for their receives
}

// newTupleLink makes the tupleLink of an EP if tuple queues are enabled. Then the matcher checks each tagged message
// before it is sent in one call.
func (e *EP) newTupleLink() {
	x, m := e.w.tuples, e.msgs
	if x == nil {
		return
	}
	l := &tupleLink{x: x, m: m}
	l.out.Init(l, &x.cfg, &x.stats)
	l.in.Init(&x.in, l)
	m.tuple, m.slowTagSend = l, true
}

// take handles a control message of the peer. It returns false if the message is not valid.
func (l *tupleLink) take(c *wire.Tuple) bool {
	switch c.Kind {
	case wire.TupleOpened, wire.TupleStop, wire.TupleClosed:
		return l.out.Take(c)
	}
	return l.m.e.w.maySend(l.m, c.Tag) && l.in.Take(c)
}

// endTuples fails the messages of an EP through queues with st. Messages that a
// transport uses complete when it releases them.
func (m *messages) endTuples(st ucs.Status) {
	if m != nil && m.tuple != nil {
		m.tuple.out.End(st)
	}
}

// endQueues closes the queues of an EP that is closing or has failed.
func (m *messages) endQueues() {
	if m != nil && m.tuple != nil {
		m.tuple.in.End()
	}
}

// tupleUnsent is called when a message outside of queues does not arrive in its turn: it was canceled before it was sent, or was
// sent out of turn. The receiver does not count it, and the credit that it had returns.
func (r *Request) tupleUnsent() {
	if m := r.ep.msgs; m != nil && m.tuple != nil {
		m.tuple.creditReleased()
	}
	if r.msg != nil && !r.msg.place.IsZero() {
		r.ep.msgs.tuple.out.Uncount(r.msg.place)
		r.msg.place = tuple.SendPlace{}
	}
}

// tupleStage sends a control message about a queue. It waits neither for messages that lack credit nor for a fence: the peer may
// give credit only after the queue is closed. The lane sends in the order of posts.
var tupleStage = stage{
	name: "tuple", role: wireup.AM, unfenced: true, completed: (*Request).answered, post: (*Request).sendTuple,
}

// tupleNextStage sends the place of a message of a queue. It is not a reply and does not count as one: there are as
// many as messages of the user.
var tupleNextStage = stage{name: "tuple", role: wireup.AM, unfenced: true, post: (*Request).sendNext}

// tupleRecord is the record of a request that sends a control message about a queue.
type tupleRecord struct {
	tag    uint64
	value  uint64
	number uint32
	kind   wire.TupleKind
}

// SendControl implements tuple.Peer.
func (l *tupleLink) SendControl(tag uint64, kind wire.TupleKind, number uint32, value uint64) {
	e := l.m.e
	if e.state > epClosing {
		return
	}
	l.x.stats.Messages.Inc()
	s := &tupleStage
	if kind == wire.TupleNext {
		s = &tupleNextStage
	}
	r := e.w.newRequest(e, s)
	*recordOf[tupleRecord](r) = tupleRecord{tag: tag, value: value, number: number, kind: kind}
	if kind != wire.TupleNext {
		r.answer()
	} else if r, _ = r.start(); r != nil {
		r.Release()
	}
}

func (r *Request) sendTuple() error {
	w, l, t := r.worker, r.ep.link, recordOf[tupleRecord](r)
	c := wire.Tuple{EP: l.conn.MessageEP(), Tag: t.tag, Value: t.value, Kind: t.kind, Number: t.number}
	w.msg.b = c.Append(w.msg.b[:0])
	_, err := l.lanes.Use[wireup.AM].AM.AMBcopy(wire.AMTuple, &w.msg)
	return err
}

func (r *Request) sendNext() error {
	out := &r.ep.msgs.tuple.out
	recordOf[tupleRecord](r).value = uint64(out.PlaceToSend())
	err := r.sendTuple()
	if err == nil {
		out.NextSent()
	}
	return err
}

// MessagesWait implements tuple.Target.
func (l *tupleLink) MessagesWait() bool { return l.m.blocks(nil) }

// Queues implements tuple.Target.
func (l *tupleLink) Queues() (q uct.QueueSender, ready bool) {
	e := l.m.e
	x := e.lane(wireup.AM)
	if e.state != epOpen || x == nil || !x.Connected {
		return nil, false
	}
	return x.EP.Ops().Queues, true
}

// QueueAttr implements tuple.Conn.
func (l *tupleLink) QueueAttr() *uct.QueueAttr {
	e := l.m.e
	x := e.lane(wireup.AM)
	if e.state != epOpen || x == nil || !x.Iface.attr.Caps.Has(uct.CapQueue) || l.queues > 0 && x.Iface != l.iface || e.w.othersBlocked(l.m) {
		return nil
	}
	return &x.Iface.attr.Queue
}

// NewQueue implements tuple.Conn.
func (l *tupleLink) NewQueue(depth int) (uct.Queue, error) {
	if err := l.x.makeSink(); err != nil {
		return nil, err
	}
	x := l.m.e.lane(wireup.AM)
	i := x.Iface
	q, err := x.EP.Ops().Queues.NewQueue(depth)
	if err != nil {
		return nil, err
	}
	i.Retain()
	l.iface, l.sink = i, uct.IOV{Buf: l.x.sink.Bytes(), Mem: l.x.sink.In(i.domain)}
	l.queues++
	return q, nil
}

// CloseQueue implements tuple.Conn.
func (l *tupleLink) CloseQueue(q uct.Queue) {
	l.x.w.addCloseError(q.Close())
	l.iface.Release()
	l.queues--
}

// Fail implements tuple.Conn.
func (l *tupleLink) Fail(why string) {
	l.m.e.markFailed(ucs.StatusRemoteInvalid, fmt.Errorf("%w: %s", ucs.ErrRemoteInvalid, why), l.iface)
}
