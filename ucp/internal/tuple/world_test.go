package tuple

import (
	"encoding/binary"
	"slices"
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
	waits  []*send  // they wait for credit
	outbox []*event // not posted yet
	there  []*event // in flight to the worker
	back   []wire.Tuple
	kept   []*msg
	dead   bool
	full   bool // the transport opens no queue

	limit      int // of unreceived messages of the usual way that the worker permits
	unreceived int
	withheld   int  // messages in queues
	stream     bool // a stream in pieces lacks credit: later messages of the usual way wait
	waited     bool // there was a stream
	requeued   []*send
}

// unlimited is the limit of a peer that never lacks credit.
const unlimited = 1 << 20

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
	place  SendPlace // among those of the usual way; zero: it uses a queue, or was sent again with its place
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
		p.limit = unlimited
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
func (w *world) Deliver(u *msg, v *recv)            { u.from.unkeep(u); u.from.unreceived--; w.end(v, u.data) }
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
	if o.dead || slices.ContainsFunc(o.w.peers, func(p *peer) bool { return p != (*peer)(o) && len(p.waits) > 0 }) {
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

func (o *target) MessagesWait() bool { return o.stream || len(o.waits) > 0 }

func (o *target) FirstWaiting() SendPlace {
	if len(o.waits) == 0 {
		return NoPlace
	}
	return o.waits[0].place
}

func (o *target) Covers() bool { return o.unreceived+o.withheld <= o.limit }

func (o *target) Requeued() {
	i := 0
	for _, s := range o.requeued {
		for i < len(o.waits) && s.place.After(o.waits[i].place) {
			i++
		}
		o.waits = slices.Insert(o.waits, i, s)
	}
	o.requeued = nil
}

// turn posts the first message of the usual way if there is credit for it.
func (p *peer) turn() bool {
	if p.stream || len(p.waits) == 0 || p.unreceived+p.withheld >= p.limit {
		return false
	}
	s := p.waits[0]
	p.waits = p.waits[1:]
	p.Sender.Sent(s.place)
	p.post(s)
	return true
}

// post posts a message of the usual way.
func (p *peer) post(s *send) {
	p.unreceived++
	require.LessOrEqual(p.w.t, p.unreceived, p.limit, "the credit is exceeded")
	p.outbox = append(p.outbox, &event{send: s})
}

// offer delivers the first message that waits for credit and matches a receive, out of turn. The worker has compared all that has
// arrived, so nothing may be in flight.
func (p *peer) offer() bool {
	w := p.w
	if p.stream || len(p.outbox)+len(p.there) > 0 || w.Paused() {
		return false
	}
	for _, s := range p.waits {
		if p.Source.Waits(s.tag); w.Paused() {
			return true
		}
	}
	for n := range w.tags.Receives() {
		for i, s := range p.waits {
			if (s.tag^n.Tag)&n.Mask != 0 {
				continue
			}
			require.True(w.t, w.tags.Cancel(n))
			p.waits = slices.Delete(p.waits, i, i+1)
			p.Uncount(s.place)
			w.end(n.Owner, s.data)
			s.ended = append(s.ended, ucs.StatusOK)
			return true
		}
	}
	return false
}

// send sends a message of n bytes.
func (p *peer) send(tag uint64, n int) *send {
	p.w.sent++
	s := &send{p: p, id: p.w.sent, tag: tag, data: make([]byte, n)}
	s.Init(s)
	binary.LittleEndian.PutUint64(s.data, s.id)
	p.sends = append(p.sends, s)
	if t := p.Find(tag); !t.Usual() {
		if (*target)(p).Covers() {
			p.Cover()
		}
		p.withheld++
		t.Send(&s.Send)
	} else {
		s.place = p.NextUsual()
		p.waits = append(p.waits, s)
		if len(p.waits) == 1 {
			p.turn()
		}
		p.WentUsual(t, tag)
	}
	return s
}

func (s *send) Pieces(most int) ([]uct.IOV, bool) {
	s.iov[0].Buf = s.data
	return s.iov[:], len(s.data) <= most
}

func (s *send) GivenUp() bool { return s.gaveUp }

func (s *send) End(st ucs.Status) {
	s.ended = append(s.ended, st)
	s.p.withheld--
}

func (s *send) Again() {
	s.p.withheld--
	s.p.post(s)
}

func (s *send) Requeue(at SendPlace) {
	s.place = at
	s.p.withheld--
	s.p.requeued = append(s.p.requeued, s)
}

// cancel cancels a message that was not sent yet or waits in a queue.
func (s *send) cancel() {
	p := s.p
	if len(s.ended) > 0 {
		return
	}
	if i := slices.Index(p.waits, s); i >= 0 {
		p.waits = slices.Delete(p.waits, i, i+1)
		s.ended = append(s.ended, ucs.StatusCanceled)
		p.Uncount(s.place)
		return
	}
	for i, e := range p.outbox {
		if e.send == s {
			p.outbox = append(p.outbox[:i:i], p.outbox[i+1:]...)
			s.ended = append(s.ended, ucs.StatusCanceled)
			if !s.place.IsZero() {
				p.Uncount(s.place)
			}
			p.unreceived--
			return
		}
	}
	if s.place.IsZero() {
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
		e.send.ended = append(e.send.ended, ucs.StatusOK)
	case e.tuple.Kind == wire.TupleNext:
		e.tuple.Value = uint64(p.PlaceToSend())
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
		p.unreceived--
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
		list = append(list, p.leave, p.arrive, p.handleTold, p.carry, p.turn, p.offer,
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
