package tuple

import (
	"encoding/binary"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// world is a worker that receives, and peers that send to it. Messages in flight are in lists.
type world struct {
	t     require.TestingT
	cfg   Config
	stats Stats
	Receiver[*recv, *msg]
	tags  match.Table[*recv, *msg]
	peers []*peer
	recvs []*recv // in the order in which they were posted
	sink  [maxLen]byte
	asked bool   // WakeIn was called
	sent  uint64 // messages of all peers
}

const maxLen = 64 // of a message, with its number at the beginning; longer ones use no queue

// recv is a receive.
type recv struct {
	node     match.Recv[*recv]
	rec      *Recv[*recv, *msg]
	order    uint64
	buf      []byte
	iov      [2]uct.IOV
	typed    bool
	at       recvAt
	canceled bool
	n        int // length of its message
}

type recvAt int

const (
	inNoList recvAt = iota
	inTable
	isHeld
	inQueue
	hasMessage
	wasCanceled
)

// msg is an unexpected message.
type msg struct {
	node  match.Msg[*msg]
	place Place
	from  *peer
	data  []byte
}

// peer is a sender, with the state of the worker for it.
type peer struct {
	*carrier
	Sender
	Source[*recv, *msg]
	w      *world
	sends  []*send
	outbox []*event // not posted yet
	there  []*event // in flight to the worker
	back   []wire.Tuple
	kept   []*msg
	dead   bool
	full   bool // the transport opens no queue
	short  bool // messages of the usual way may wait for credit
}

// event is a message of the usual way, or a control message.
type event struct {
	send  *send
	tuple wire.Tuple
}

// send is a message and its send.
type send struct {
	Send
	p      *peer
	id     uint64
	tag    uint64
	data   []byte
	iov    [1]uct.IOV
	number uint64 // among those of the usual way; 0: it used a queue first
	gaveUp bool
	ended  []ucs.Status
}

func newWorld(t require.TestingT, cfg Config, peers int) *world {
	w := &world{t: t, cfg: cfg}
	w.tags.Init()
	w.Receiver.Init(w, &w.tags, &w.cfg, &w.stats)
	for range peers {
		p := &peer{w: w, carrier: newCarrier()}
		p.Sender.Init((*target)(p), &w.cfg, &w.stats)
		p.Source.Init(&w.Receiver, (*origin)(p))
		w.peers = append(w.peers, p)
	}
	return w
}

// The worker: Worker of its Receiver.

func (w *world) Order(v *recv) uint64               { return v.order }
func (w *world) Queueable(v *recv) bool             { return !v.typed }
func (w *world) Expects(v *recv)                    { v.at = inTable }
func (w *world) Holds(v *recv)                      { v.at = isHeld }
func (w *world) Source(u *msg) *Source[*recv, *msg] { return &u.from.Source }
func (w *world) Place(u *msg) *Place                { return &u.place }
func (w *world) Raise()                             {}
func (w *world) Resumed()                           {}
func (w *world) WakeIn(time.Duration)               { w.asked = true }
func (w *world) Deliver(u *msg, v *recv)            { u.from.unkeep(u); w.end(v, u.data) }
func (w *world) Requeue(u *msg)                     { w.tags.Remove(&u.node); u.from.unkeep(u); u.from.keep(u) }
func (w *world) end(v *recv, data []byte)           { v.at, v.n = hasMessage, len(data); copy(v.buf, data) }
func (w *world) Before(u *msg) (before *match.Msg[*msg]) {
	for _, k := range u.from.kept {
		if k == u {
			return before
		}
		before = &k.node
	}
	require.Fail(w.t, "a message that is not kept")
	return nil
}

func (p *peer) keep(u *msg) {
	p.kept = append(p.kept, u)
	p.w.tags.Keep(&u.node)
}

func (p *peer) unkeep(u *msg) {
	for i, k := range p.kept {
		if k == u {
			p.kept = append(p.kept[:i:i], p.kept[i+1:]...)
			return
		}
	}
	require.Fail(p.w.t, "a message that is not kept")
}

// post posts a receive.
func (w *world) post(tag, mask uint64, room int, typed bool) *recv {
	v := &recv{order: uint64(len(w.recvs)) + 1, buf: make([]byte, room), typed: typed}
	v.node.Owner, v.node.Tag, v.node.Mask = v, tag, mask
	w.recvs = append(w.recvs, v)
	w.Admit(&v.node)
	return v
}

// cancel cancels a receive, if that is possible at once.
func (w *world) cancel(v *recv) {
	back := false
	switch v.at {
	case inTable:
		back = w.tags.Cancel(&v.node)
	case isHeld:
		back = w.Unhold(&v.node)
	case inQueue:
		v.canceled = true
		if back = v.rec.Cancel(); !back {
			return
		}
	default:
		return
	}
	require.True(w.t, back)
	v.at = wasCanceled
}

// origin is a peer as the Conn of its Source.
type origin peer

func (o *origin) SendControl(tag uint64, kind wire.TupleKind, number uint32, value uint64) {
	o.back = append(o.back, wire.Tuple{Tag: tag, Kind: kind, Number: number, Value: value})
}

func (o *origin) QueueAttr() *uct.QueueAttr {
	if o.dead {
		return nil
	}
	return &uct.QueueAttr{MaxMessage: maxLen, MaxDepth: fakeDepth, MaxQueues: 100}
}

func (o *origin) NewQueue(int) (uct.Queue, error) {
	if o.full {
		return nil, uct.ErrNoResource
	}
	return o.makeQueue(), nil
}

func (o *origin) CloseQueue(q uct.Queue) { require.NoError(o.w.t, q.Close()) }

func (o *origin) Prepare(v *recv) *Recv[*recv, *msg] {
	if v.typed {
		return nil
	}
	if v.rec == nil {
		v.rec = &Recv[*recv, *msg]{}
		v.rec.Init()
	}
	v.iov = [2]uct.IOV{{Buf: v.buf}, {Buf: o.w.sink[:]}}
	v.rec.IOV, v.at = v.iov[:], inQueue
	return v.rec
}

func (o *origin) Received(v *recv, n int) {
	require.Equal(o.w.t, inQueue, v.at)
	v.at, v.n = hasMessage, n
}

func (o *origin) Returned(v *recv) bool {
	require.Equal(o.w.t, inQueue, v.at)
	if v.at = inNoList; v.canceled {
		v.at = wasCanceled
	}
	return !v.canceled
}

func (o *origin) LastUnexpected() *match.Msg[*msg] {
	if len(o.kept) == 0 {
		return nil
	}
	return &o.kept[len(o.kept)-1].node
}

func (o *origin) Fail(why string) { require.Fail(o.w.t, why) }

// target is a peer as the Target of its Sender.
type target peer

func (o *target) SendControl(tag uint64, kind wire.TupleKind, number uint32, value uint64) {
	o.outbox = append(o.outbox, &event{tuple: wire.Tuple{Tag: tag, Kind: kind, Number: number, Value: value}})
}

func (o *target) Queues() (uct.QueueSender, bool) { return o.carrier, true }

func (o *target) MessagesWait() bool { return o.short && len(o.outbox) > 0 }

// send sends a message of n bytes.
func (p *peer) send(tag uint64, n int) *send {
	p.w.sent++
	s := &send{p: p, id: p.w.sent, tag: tag, data: make([]byte, n)}
	s.Init(s)
	binary.LittleEndian.PutUint64(s.data, s.id)
	p.sends = append(p.sends, s)
	if t := p.Find(tag); !t.Usual() {
		t.Send(&s.Send)
	} else {
		s.number = p.NextUsual()
		p.outbox = append(p.outbox, &event{send: s})
		p.WentUsual(t, tag)
	}
	return s
}

func (s *send) Pieces(most int) ([]uct.IOV, bool) {
	s.iov[0].Buf = s.data
	return s.iov[:], len(s.data) <= most
}

func (s *send) GivenUp() bool     { return s.gaveUp }
func (s *send) End(st ucs.Status) { s.ended = append(s.ended, st) }
func (s *send) Again()            { s.p.outbox = append(s.p.outbox, &event{send: s}) }

// cancel cancels a message that was not sent yet or waits in a queue.
func (s *send) cancel() {
	p := s.p
	if len(s.ended) > 0 {
		return
	}
	for i, e := range p.outbox {
		if e.send == s {
			p.outbox = append(p.outbox[:i:i], p.outbox[i+1:]...)
			s.End(ucs.StatusCanceled)
			if s.number != 0 {
				p.Uncount(s.number)
			}
			return
		}
	}
	if s.number == 0 {
		s.gaveUp = true
		p.Cancel(s.tag)
	}
}

// leave sends the first message of the outbox.
func (p *peer) leave() bool {
	if len(p.outbox) == 0 {
		return false
	}
	e := p.outbox[0]
	p.outbox, p.there = p.outbox[1:], append(p.there, e)
	switch {
	case e.send != nil:
		e.send.End(ucs.StatusOK)
	case e.tuple.Kind == wire.TupleNext:
		e.tuple.Value = p.PlaceToSend(e.tuple.Value)
		p.NextSent()
	}
	return true
}

// arrive makes the worker handle the first message in flight.
func (p *peer) arrive() bool {
	if len(p.there) == 0 {
		return false
	}
	e := p.there[0]
	p.there = p.there[1:]
	if e.send == nil {
		require.True(p.w.t, p.Source.Take(&e.tuple), "%+v", e.tuple)
		return true
	}
	tag := e.send.tag
	p.BeforeArrival(tag)
	if n := p.w.tags.Arrive(tag); n != nil {
		p.w.end(n.Owner, e.send.data)
		p.AfterArrival(nil)
		return true
	}
	u := &msg{from: p, data: e.send.data}
	u.node.Owner, u.node.Tag = u, tag
	p.keep(u)
	p.AfterArrival(&u.node)
	return true
}

// handleTold makes the sender handle the first control message of the worker.
func (p *peer) handleTold() bool {
	if len(p.back) == 0 {
		return false
	}
	c := p.back[0]
	p.back = p.back[1:]
	require.True(p.w.t, p.Sender.Take(&c), "%+v", c)
	return true
}

// carry delivers a message to a queue.
func (p *peer) carry() bool {
	for _, x := range p.conns {
		if x.carry() {
			return true
		}
	}
	return false
}

// steps are all steps that can happen.
func (w *world) steps() []func() bool {
	list := []func() bool{func() bool { return w.Work() > 0 }, func() bool {
		asked := w.asked
		if w.asked = false; asked {
			w.RetryStops()
		}
		return asked
	}}
	for _, p := range w.peers {
		list = append(list, p.leave, p.arrive, p.handleTold, p.carry,
			func() bool { return poll(&p.toSend) }, func() bool { return poll(&p.toRecv) })
	}
	return list
}

// settle continues until no step does anything.
func (w *world) settle() {
	steps := w.steps()
	for n := 0; ; n++ {
		require.Less(w.t, n, 100_000, "it does not settle")
		moved := false
		for _, step := range steps {
			moved = step() || moved
		}
		if !moved {
			return
		}
	}
}
