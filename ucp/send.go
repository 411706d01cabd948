package ucp

import (
	"fmt"
	"github.com/gucx/gucx/ucp/internal/window"
	"math"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// channel is what tagged messages, active messages and streams differ in when they are
// sent: the active messages that carry them, and their stages.
type channel struct {
	whole uint8 // active message of a message that goes in one
	sync  uint8 // of one that waits for its receiver; 0 if there is none
	first uint8 // of the first fragment; 0 if messages have no bounds
	rts   uint8 // of an announcement; 0 if there is none

	send     stage // until there is a lane, and credit
	one      stage // whole, by a copy
	bare     stage // whole, without a copy
	pieces   stage // in fragments
	announce stage // data stays here until the peer asks for it
	waitAck  stage // whole, by a copy, and waits for the receiver

	// saves reports that announcing a message of n bytes saves time. Not nil if there are announcements.
	saves func(r *Request, n int) bool
}

// newChannel makes the stages of a channel that is called name in errors, but for that of announcements.
func newChannel(name string, cl *class, ids channel) *channel {
	c := &ids
	with := func(post func(*Request) error) stage {
		return stage{
			class: cl, name: name, sized: true, role: wireup.AM, inOrder: true, stop: unposted,
			choose: (*Request).chooseSend, admit: (*Request).admitted, post: post,
		}
	}
	c.send = with(nil)
	c.one, c.pieces, c.waitAck = with((*Request).sendWhole), with((*Request).sendPieces), with((*Request).sendSync)
	c.bare = with((*Request).sendBare)
	return c
}

// messageClass is messages that are sent in order.
var messageClass = class{
	heldBack:  func(r *Request) bool { return r.ep.msgs.holdsBack(r) },
	waits:     func(r *Request) { r.ep.msgs.unbind() },
	takenBack: (*Request).refund,
	canceled: func(r *Request) {
		r.refund()
		r.unsent()
	},
	free: (*Request).freeMessage,
}

// sends say how messages go over a transport.
type sends struct {
	eager int // longest data that is sent unasked by one copy, in bytes
	bare  int // least and
	most  int // greatest length of data that goes without a copy in one call; least is math.MaxInt if there is none
	piece int // longest data of one fragment
	data  int // longest data of one fragment of a message that was announced
	rndv  int // least length that is announced in any case; see EP.announcedFrom

	control bool // a wire.Control goes short

	header int // longest header of an active message that goes with bare
}

// sends chooses how messages go over the transport, once.
func (i *iface) sends() *sends {
	if i.messages == nil {
		i.messages = i.chooseSends()
	}
	return i.messages
}

// aligned is n rounded down so that fragments begin at lines of the cache, if it is long.
func aligned(n int) int {
	if n < cacheLine {
		return n
	}
	return n &^ (cacheLine - 1)
}

// cacheLine is in bytes, as on amd64 and most of arm64.
const cacheLine = 64

func (i *iface) chooseSends() *sends {
	limits, costs := &i.attr.AM, &i.attr.Costs
	s := &sends{piece: limits.MaxBcopy - wire.FragLen - wire.PartLen, data: aligned(limits.MaxBcopy - wire.FragLen), bare: math.MaxInt, rndv: i.w.ctx.cfg.rndvThresh()}
	s.eager = min(limits.MaxBcopy-wire.HeadLen, s.rndv-1)
	s.control = i.attr.Caps.Has(uct.CapAMShort) && limits.MaxShort >= wire.ControlLen
	if !i.attr.Caps.Has(uct.CapAMZcopy) || limits.MaxHeader < wire.HeadLen {
		return s
	}
	s.most, s.header = min(limits.MaxZcopy-wire.HeadLen, s.rndv-1), limits.MaxHeader-wire.HeadLen
	for n := max(limits.MinZcopy, 1); n <= s.most; n *= 2 {
		if costs[uct.AMZcopy].Time(uint64(n)) < costs[uct.AMBcopy].Time(uint64(n)) {
			s.bare = n
			break
		}
	}
	return s
}

// message is what a request has besides if it is a message.
type message struct {
	ch      *channel
	word    uint64      // that it begins with: the tag of a tagged one
	header  []byte      // of an active message; the caller's again when the request has ended
	data    data.Buffer // that is not in one piece; no bytes if it is in Request.buf
	charged int64       // to the window; 0 if it is not yet
	acked   bool        // ends when the peer has received it
	recalls bool        // canceled: ends with ErrCanceled when the queue of the transport, or the peer, gives it back
	id      uint64      // name of one that goes in fragments
	queued  *queuedTag  // its place among the tagged messages that wait; nil if it does not
	number  uint64      // of a tagged message where some go through queues; 0 otherwise
	count   *int        // where to say how many bytes of a stream were sent or received; may be nil
	all     bool        // a receive of a stream ends when its buffer is full
	next    *message    // in Worker.messages.free
}

// length is the length of the message of r in bytes, with its header.
func (m *message) length(r *Request) int { return len(m.header) + r.total() }

// newMessageRecord takes an empty record.
func (w *Worker) newMessageRecord() *message {
	m := w.messages.free
	if m == nil {
		return &message{}
	}
	w.messages.free, m.next = m.next, nil
	return m
}

// newMessage takes a request for sending data.
func (w *Worker) newMessage(e *EP, c *channel, word uint64, data []byte, p *OpParams) *Request {
	r := w.newRequest(e, &c.send)
	r.msg, r.buf = w.newMessageRecord(), data
	r.msg.ch, r.msg.word = c, word
	if p != nil {
		r.mem, r.onDone = (*region.Mem)(p.Mem), p.OnDone
	}
	return r
}

// freeMessage gives back what a message had.
func (r *Request) freeMessage() {
	m := r.msg
	if m == nil {
		return
	}
	r.msg = nil
	*m = message{next: r.worker.messages.free}
	r.worker.messages.free = m
}

// newSend checks a message that does not go in one call, or not now, and makes its request.
func (e *EP) newSend(c *channel, word uint64, data []byte, p *OpParams) (*Request, error) {
	a := action{stage: &c.send, n: len(data)}
	if err := e.refuses(a); err != nil {
		return nil, err
	}
	if !e.peer.Best[wireup.AM].OK {
		return nil, e.wrong(a, uct.ErrUnsupported, e.w.unreachable(wireup.AM, e.peer.Addr))
	}
	if p != nil && p.Mem != nil && !(*region.Mem)(p.Mem).Covers(data) {
		return nil, e.wrong(a, uct.ErrInvalidParam, "the buffer is not in OpParams.Mem")
	}
	e.used()
	e.messaging()
	return e.w.newMessage(e, c, word, data, p), nil
}

// chooseSend chooses how the message goes over the lane that there is now, and with the
// credit that there is.
func (r *Request) chooseSend() {
	if r.msg.charged > 0 {
		return
	}
	c, n := r.msg.ch, r.msg.length(r)
	x := r.ep.lane(wireup.AM)
	s := x.Iface.sends()
	switch {
	case c.rts != 0 && (n >= s.rndv || r.longEnough(n, s) && c.saves(r, n) || r.ep.msgs.Credit < charge(n)):
		r.stage = &c.announce
	case r.msg.acked && n > x.Iface.attr.AM.MaxBcopy-wire.HeadLen-wire.PartLen:
		r.stage = &c.announce
	case r.msg.acked:
		r.stage = &c.waitAck
	case r.data() == nil && n >= s.bare && n <= s.most && len(r.msg.header) <= s.header && r.reached(x):
		r.stage = &c.bare
	case n > s.eager && n > x.Iface.attr.AM.MaxBcopy-wire.HeadLen:
		r.stage = &c.pieces
	default:
		r.stage = &c.one
	}
}

// longEnough reports that a message of n bytes may be announced to save time: if one call does not
// take it, or its data is in memory that the caller has registered and so goes by a request anyway.
func (r *Request) longEnough(n int, s *sends) bool {
	return n > s.eager || r.mem != nil && n >= proto.ShortestAnnounced
}

// reached reports that the transport of a lane gets the buffer by itself.
func (r *Request) reached(x *lane) bool {
	d := x.Iface.domain
	return !d.Attr.NeedMemH || r.mem != nil && r.mem.In(d) != nil
}

// admitted charges the message to the window. It reports false if there is no credit for
// it.
func (r *Request) admitted() bool {
	m, a := r.msg, r.ep.msgs
	if m.charged > 0 {
		return true
	}
	n, below := charge(m.length(r)), int64(0)
	if r.stage.announces {
		n, below = charge(len(m.header)), window.Reserve(a.Most)
	}
	if !a.Afford(n, below) {
		a.stall()
		return false
	}
	m.charged = n
	return true
}

// stall counts a wait for the peer to grant credit: once until it does.
func (m *messages) stall() {
	if !m.stalled {
		m.stalled = true
		m.e.w.stats.waitsCredit.Inc()
	}
}

// refund takes the charge of a message back that will not be sent, or not as it was charged.
func (r *Request) refund() {
	if m := r.msg; m != nil && m.charged > 0 {
		r.ep.msgs.Credit += m.charged
		m.charged = 0
	}
}

// sendWhole sends the message in one call.
func (r *Request) sendWhole() error {
	x, w := r.ep.lane(wireup.AM), r.worker
	h := wire.Head{Word: r.msg.word, EP: r.ep.link.conn.MessageEP()}
	if r.data() == nil {
		return w.messages.whole.send(x.AM, r.msg.ch.whole, h, r.msg.header, r.buf)
	}
	w.msg.b = append(h.Append(w.msg.b[:0]), r.msg.header...)
	return r.sendPart(x, r.msg.ch.whole, w.msg.b, 0, r.total())
}

// sendBare sends the message in one call without a copy.
func (r *Request) sendBare() error {
	x := r.ep.lane(wireup.AM)
	h := wire.Head{Word: r.msg.word, EP: r.ep.link.conn.MessageEP()}
	w := r.worker
	w.msg.b = append(h.Append(w.msg.b[:0]), r.msg.header...)
	iov := r.bare(r.buf, r.mem, x.Iface.domain)
	r.comp.Count++
	return r.took(x.AM.AMZcopy(r.msg.ch.whole, w.msg.b, iov, &r.comp))
}

// sendPieces sends the rest of the message, fragment by fragment. What is sent is in
// Request.off.
func (r *Request) sendPieces() error {
	x, m := r.ep.lane(wireup.AM), r.msg
	piece := x.Iface.sends().piece
	if m.id == 0 {
		r.ep.msgs.lastID++
		m.id = r.ep.msgs.lastID
	}
	if len(m.header) > piece {
		return ucs.ErrTooLong
	}
	total := r.total()
	for r.off < total || r.flags&reqPosted == 0 {
		n := min(total-r.off, piece)
		if r.off == 0 {
			n = min(n, piece-len(m.header))
		}
		if err := r.sendPiece(x, n); err != nil {
			return err
		}
		r.off += n
		r.flags |= reqPosted
	}
	return nil
}

func (r *Request) sendPiece(x *lane, n int) error {
	w, m := r.worker, r.msg
	id, name := wire.AMFrag, r.ep.link.conn.MessageEP()
	if r.off == 0 {
		id = int(m.ch.first)
		h, p := wire.Head{Word: m.word, EP: name}, wire.Part{Value: uint64(r.total()), ID: m.id}
		w.msg.b = append(p.Append(h.Append(w.msg.b[:0])), m.header...)
	} else {
		f := wire.Frag{EP: name, ID: m.id, Offset: uint64(r.off)}
		w.msg.b = f.Append(w.msg.b[:0])
	}
	return r.sendPart(x, uint8(id), w.msg.b, r.off, n)
}

// sendSync sends the message in one call; the request ends when the peer has received it.
func (r *Request) sendSync() error {
	x, w := r.ep.lane(wireup.AM), r.worker
	r.nameIt()
	h, p := wire.Head{Word: r.msg.word, EP: r.ep.link.conn.MessageEP()}, wire.Part{ID: r.remote}
	w.msg.b = p.Append(h.Append(w.msg.b[:0]))
	err := r.sendPart(x, r.msg.ch.sync, w.msg.b, 0, r.total())
	if err == nil {
		r.flags |= reqPosted
		r.awaitPeer()
	}
	return err
}

// nameIt gives the request a name by which the peer calls it.
func (r *Request) nameIt() {
	if r.remote == 0 {
		r.remote = r.worker.pool.remote.Add(r)
	}
}

// newSendData is newSend for data that is not in one piece.
func (e *EP) newSendData(c *channel, word uint64, d *data.Buffer, p *OpParams) (*Request, error) {
	if err := d.Validate(); err != nil || d.Len() > maxMessage {
		return nil, e.wrong(action{stage: &c.send}, ucs.ErrInvalidParam, "the data has no valid length, or is to be received into")
	}
	r, err := e.newSend(c, word, nil, nil)
	if err == nil {
		r.msg.data, r.onDone = *d, p.onDone()
	}
	return r, err
}

// data is the data of a message that is not in Request.buf; nil if it is there. A request
// that sends it for its parent has the parent's.
func (r *Request) data() *data.Buffer {
	m := r.msg
	if m == nil && r.parent != nil {
		m = r.parent.msg
	}
	if m == nil || m.data.Len() == 0 {
		return nil
	}
	return &m.data
}

// total is how many bytes of data the request is to send.
func (r *Request) total() int {
	if d := r.data(); d != nil {
		return d.Len()
	}
	return len(r.buf)
}

// sendPart sends a header and n bytes of the message from an offset on, by one copy.
func (r *Request) sendPart(x *lane, id uint8, head []byte, off, n int) error {
	p := &r.worker.messages.piece
	p.head = head
	if d := r.data(); d != nil {
		p.from, p.off, p.n = d, off, n
		r.worker.packing = d.Generic()
	} else {
		p.data = r.buf[off : off+n]
	}
	_, err := x.AM.AMBcopy(id, p)
	broken := p.err
	*p, r.worker.packing = headedMsg{}, false
	if err == nil && broken != nil {
		r.ep.markFailed(ucs.StatusInvalidParam, fmt.Errorf("%w: the data of a message could not be packed", broken), nil)
		return broken
	}
	return err
}

// headedMsg is a header and data on their way into a transport buffer.
type headedMsg struct {
	head, data []byte

	from   *data.Buffer // nil: data has it
	off, n int          // in from
	err    error        // why it could not be packed
}

// Pack copies both.
func (m *headedMsg) Pack(dst []byte) int {
	at := copy(dst, m.head)
	if m.from == nil {
		return at + bulk.Copy(dst[at:], m.data)
	}
	to := dst[at : at+m.n]
	n, err := m.from.Pack(m.off, to)
	if err != nil {
		m.err = err
		clear(to[n:])
	}
	return at + m.n
}

// maxEager is the longest message that may come in fragments, in bytes: the window bounds
// it further.
const maxEager = 1 << 40
