package ucp

import (
	"fmt"
	"github.com/gucx/gucx/ucp/internal/window"
	"math"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucp/internal/tuple"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// channel has the differences between sends of tagged messages, active messages and streams:
// the ids of the transport's active messages, and the stages.
type channel struct {
	eagerID uint8 // id of a complete eager message
	sync    uint8 // id of a complete synchronous message; 0 if there is none
	first   uint8 // id of the first fragment; 0 for a stream, which has no messages
	rts     uint8 // id of an RTS; 0 if there is no rendezvous

	rndv rndvChannel // index of the lengths from which messages use rendezvous, if rts is not 0

	send     stage // the first stage: chooses another one when there is a lane, and credit
	bcopy    stage // complete message, bcopy
	zcopy    stage // complete message, zcopy
	pieces   stage // fragments
	announce stage // rendezvous: sends the RTS; the data remains here until the peer fetches or requests it
	waitAck  stage // complete synchronous message, bcopy

	// rndvFrom is messages.rndvFrom. Not nil if rts is not 0.
	rndvFrom func(m *messages, c rndvChannel, mem *region.Mem, f OpFlags) int
}

// rndvChannel is a channel with rendezvous. Each has its own thresholds.
type rndvChannel uint8

const (
	tagRndv    rndvChannel = iota // the receiver copies eager messages
	activeRndv                    // a handler reads an eager message of one fragment where it has arrived
	rndvChannels
)

// newChannel makes the stages of a channel, except for announce. Errors contain name.
func newChannel(name string, cl *class, ids channel) *channel {
	c := &ids
	with := func(post func(*Request) error) stage {
		return stage{
			class: cl, name: name, sized: true, role: wireup.AM, inOrder: true, tryCancel: unposted,
			choose: (*Request).chooseSend, admit: (*Request).admitted, post: post,
		}
	}
	c.send = with(nil)
	c.bcopy, c.pieces, c.waitAck = with((*Request).sendBcopy), with((*Request).sendPieces), with((*Request).sendSync)
	c.zcopy = with((*Request).sendZcopy)
	return c
}

// messageClass is the class of messages, which are sent in order.
var messageClass = class{
	isBlocked: func(r *Request) bool { return r.ep.msgs.blocks(r) },
	waits:     func(r *Request) { r.ep.msgs.unbind() },
	revert:    (*Request).refund,
	canceled: func(r *Request) {
		r.refund()
		r.unsent()
	},
	free: (*Request).freeMessage,
}

// sends has the lengths for which each protocol of messages is used over a transport, in bytes of data.
type sends struct {
	eager    int // maximum for eager bcopy
	minZcopy int // minimum for eager zcopy; math.MaxInt if there is none
	maxZcopy int // maximum for eager zcopy
	piece    int // maximum of a fragment of an eager message
	data     int // maximum of a fragment of a rendezvous message
	rndv     int // minimum from which every message uses rendezvous; see messages.rndvFrom

	control bool // a wire.Control is sent as a short message

	header int // maximum length of the header of an active message by zcopy
}

// sends returns the lengths for the transport, which it computes once.
func (i *iface) sends() *sends {
	if i.messages == nil {
		i.messages = i.chooseSends()
	}
	return i.messages
}

// aligned rounds n down to whole cache lines, unless n is smaller than one.
func aligned(n int) int {
	if n < cacheLine {
		return n
	}
	return n &^ (cacheLine - 1)
}

// cacheLine is the size of a cache line in bytes, on amd64 and most arm64 CPUs.
const cacheLine = 64

func (i *iface) chooseSends() *sends {
	limits, costs := &i.attr.AM, &i.attr.Costs
	s := &sends{piece: limits.MaxBcopy - wire.FragLen - wire.PartLen, data: aligned(limits.MaxBcopy - wire.FragLen), minZcopy: math.MaxInt, rndv: i.w.ctx.cfg.rndvThresh()}
	s.eager = min(limits.MaxBcopy-wire.HeadLen, s.rndv-1)
	s.control = i.attr.Caps.Has(uct.CapAMShort) && limits.MaxShort >= wire.ControlLen
	if !i.attr.Caps.Has(uct.CapAMZcopy) || limits.MaxHeader < wire.HeadLen {
		return s
	}
	s.maxZcopy, s.header = min(limits.MaxZcopy-wire.HeadLen, s.rndv-1), limits.MaxHeader-wire.HeadLen
	for n := max(limits.MinZcopy, 1); n <= s.maxZcopy; n *= 2 {
		if costs[uct.AMZcopy].Time(uint64(n)) < costs[uct.AMBcopy].Time(uint64(n)) {
			s.minZcopy = n
			break
		}
	}
	return s
}

// message is the additional state of a request that is a message.
type message struct {
	ch      *channel
	word    uint64          // the first word; the tag of a tagged message
	header  []byte          // of an active message; gucx uses it until the request has completed
	charged int64           // charge to the window in bytes; 0 before it is charged
	flags   OpFlags         // OpParams.Flags
	acked   bool            // completes with the ACK of the peer
	recalls bool            // canceled: completes with ErrCanceled when the queue of the transport, or the peer, returns it
	all     bool            // a receive of a stream completes only when its buffer is full
	id      uint64          // id of a message that is sent in fragments
	queued  *queuedTag      // position among the queued tagged messages; nil if it is not queued
	place   tuple.SendPlace // of a tagged message outside of queues if some messages use tuple queues; otherwise zero
	count   *int            // destination of the number of bytes of a stream that were sent or received; may be nil
	next    *message        // in Worker.messages.free

	typedData // data that is not contiguous; empty if the data is in Request.buf
}

// length returns the length of the message of r in bytes, with its header.
func (m *message) length(r *Request) int { return len(m.header) + r.total() }

// newMessageRecord returns an empty record from the pool.
func (w *Worker) newMessageRecord() *message {
	m := w.messages.free
	if m == nil {
		return &message{}
	}
	w.messages.free, m.next = m.next, nil
	return m
}

// newMessage returns a request that sends data.
func (w *Worker) newMessage(e *EP, c *channel, word uint64, data []byte, p *OpParams) *Request {
	r := w.newRequest(e, &c.send)
	r.msg, r.buf = w.newMessageRecord(), data
	r.msg.ch, r.msg.word = c, word
	if p != nil {
		r.mem, r.onDone, r.msg.flags = (*region.Mem)(p.Mem), p.OnDone, p.Flags
	}
	return r
}

// freeMessage returns the record of a message to the pool.
func (r *Request) freeMessage() {
	m := r.msg
	if m == nil {
		return
	}
	r.msg = nil
	*m = message{next: r.worker.messages.free}
	r.worker.messages.free = m
}

// newSend makes the request of a message that cannot be sent in one call now. It returns an error if the
// arguments or the state of the EP are wrong.
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
	if err := e.checkFlags(a, p); err != nil {
		return nil, err
	}
	e.markUsed()
	e.messaging()
	return e.w.newMessage(e, c, word, data, p), nil
}

// chooseSend sets the stage of the message, by its length, the lane and the credit.
func (r *Request) chooseSend() {
	if r.msg.charged > 0 {
		return
	}
	c, n := r.msg.ch, r.msg.length(r)
	x := r.ep.lane(wireup.AM)
	s := x.Iface.sends()
	switch {
	case c.rts != 0 && r.needsRTS(n, s):
		r.stage = &c.announce
	case r.msg.acked && n > x.Iface.attr.AM.MaxBcopy-wire.HeadLen-wire.PartLen:
		r.stage = &c.announce
	case r.msg.acked:
		r.stage = &c.waitAck
	case r.msg.flags&PreferFastCompletion == 0 && r.data() == nil && n >= s.minZcopy && n <= s.maxZcopy && len(r.msg.header) <= s.header && r.reached(x):
		r.stage = &c.zcopy
	case n > s.eager && n > x.Iface.attr.AM.MaxBcopy-wire.HeadLen:
		r.stage = &c.pieces
	default:
		r.stage = &c.bcopy
	}
}

// needsRTS reports whether a message of n bytes uses rendezvous.
func (r *Request) needsRTS(n int, s *sends) bool {
	f, m := r.msg.flags, r.ep.msgs
	broke := m.Credit < charge(n)
	switch {
	case f&SendRendezvous != 0:
		return true
	case f&SendEager != 0:
		return broke && charge(n) > m.Most/2 // the receiver may keep half of the credit until it is due
	case f&PreferFastCompletion != 0:
		return broke || n >= s.rndv
	}
	c := r.msg.ch
	return n >= s.rndv || n >= s.leastRndv(c.rndv, r.mem != nil) && n >= c.rndvFrom(m, c.rndv, r.mem, f) || broke
}

// leastRndv returns the minimum of messages.rndvFrom, in bytes, if Config.RndvThresh is not set. A message that one call can send is
// eager, unless its data is in registered memory of the caller, so that it may need a request in any case, and the receiver
// copies it.
func (s *sends) leastRndv(c rndvChannel, registered bool) int {
	if registered && c == tagRndv {
		return proto.ShortestAnnounced
	}
	return s.eager + 1
}

// startFlagged starts a new message with the flags of p, which may be nil. start starts it without flags.
func (r *Request) startFlagged(p *OpParams, start func(*Request) (*Request, error)) (*Request, error) {
	if p.flags()&CompleteNow != 0 {
		return nil, r.sendNow()
	}
	w := r.worker
	r, err := start(r)
	return w.completeLater(p, r, err)
}

// sendNow sends a new message by one bcopy and recycles the request. It returns ErrNoResource if the message cannot be
// sent now; then it has queued nothing.
func (r *Request) sendNow() error {
	e, a := r.ep, action{stage: &r.msg.ch.send, n: r.total()}
	err, lost := error(uct.ErrNoResource), e.lostRoleErr(wireup.AM)
	if lost == nil && r.canCompleteNow() {
		r.stage = &r.msg.ch.bcopy
		r.admitted() // canCompleteNow has checked the credit
		if err = r.stage.post(r); err != nil {
			r.refund()
		} else if x := e.lane(wireup.AM); !x.Connected {
			e.link.markConnected(x)
		}
	}
	e.w.recycle(r)
	switch {
	case lost != nil:
		return e.errorOf(a, lost)
	case err == nil:
		return nil
	case err == uct.ErrNoResource, e.canReroute(a.stage, err):
		return uct.ErrNoResource
	}
	return e.refused(a, err)
}

// streamPiece is the maximum length of a stream piece in bytes.
func (i *iface) streamPiece() int { return aligned(i.attr.AM.MaxBcopy - wire.HeadLen) }

// canCompleteNow reports whether one bcopy may send the message now, unless the lane has no resources. If there is no
// lane, it requests one.
func (r *Request) canCompleteNow() bool {
	e, m, n := r.ep, r.msg, r.msg.length(r)
	x := e.lane(wireup.AM)
	if x == nil {
		e.requestLane(wireup.AM)
		return false
	}
	limit := x.Iface.attr.AM.MaxBcopy - wire.HeadLen
	if m.ch.first == 0 {
		limit = x.Iface.streamPiece()
	}
	announces := m.ch.rts != 0 && m.flags&SendRendezvous != 0
	return !m.acked && !announces && n <= limit && e.fence.count == 0 && !e.msgs.blocks(nil) && e.msgs.Credit >= charge(n)
}

// reached reports whether the transport of a lane can read the buffer without a copy.
func (r *Request) reached(x *lane) bool {
	d := x.Iface.domain
	return !d.Attr.NeedMemH || r.mem != nil && r.mem.In(d) != nil
}

// admitted charges the message to the window. It returns false if there is not enough credit.
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

// stall counts a wait for credit, once until the peer grants some.
func (m *messages) stall() {
	if !m.stalls.now {
		m.stalls.now = true
		m.stalls.total++
		m.e.w.stats.waitsCredit.Inc()
	}
}

// refund returns the charge of a message that will not be sent, or that will be charged again.
func (r *Request) refund() {
	if m := r.msg; m != nil && m.charged > 0 {
		r.ep.msgs.Credit += m.charged
		m.charged = 0
	}
}

// sendBcopy sends the complete message by bcopy.
func (r *Request) sendBcopy() error {
	x, w := r.ep.lane(wireup.AM), r.worker
	h := wire.Head{Word: r.msg.word, EP: r.ep.link.conn.MessageEP()}
	if r.data() == nil {
		return w.messages.eager.send(x.AM, r.msg.ch.eagerID, h, r.msg.header, r.buf)
	}
	w.msg.b = append(h.Append(w.msg.b[:0]), r.msg.header...)
	return r.sendPart(x, r.msg.ch.eagerID, w.msg.b, 0, r.total())
}

// sendZcopy sends the complete message by zcopy.
func (r *Request) sendZcopy() error {
	x := r.ep.lane(wireup.AM)
	h := wire.Head{Word: r.msg.word, EP: r.ep.link.conn.MessageEP()}
	w := r.worker
	w.msg.b = append(h.Append(w.msg.b[:0]), r.msg.header...)
	iov := r.zcopyIOV(r.buf, r.mem, x.Iface.domain)
	r.comp.Count++
	return r.recordPost(x.AM.AMZcopy(r.msg.ch.eagerID, w.msg.b, iov, &r.comp))
}

// sendPieces sends the rest of the message in fragments. Request.off is the number of bytes that were sent.
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

// sendSync sends the complete message by bcopy. The request completes when the peer has received it.
func (r *Request) sendSync() error {
	x, w := r.ep.lane(wireup.AM), r.worker
	r.assignID()
	h, p := wire.Head{Word: r.msg.word, EP: r.ep.link.conn.MessageEP()}, wire.Part{ID: r.remote}
	w.msg.b = p.Append(h.Append(w.msg.b[:0]))
	err := r.sendPart(x, r.msg.ch.sync, w.msg.b, 0, r.total())
	if err == nil {
		r.flags |= reqPosted
		r.awaitPeer()
	}
	return err
}

// assignID assigns an id to the request, which the reply of the peer contains.
func (r *Request) assignID() {
	if r.remote == 0 {
		r.remote = r.worker.pool.remote.Add(r)
	}
}

// newSendData is newSend for data that is not contiguous.
func (e *EP) newSendData(c *channel, word uint64, d *data.Buffer, p *OpParams) (*Request, error) {
	if err := d.Validate(); err != nil || d.Len() > maxMessage {
		return nil, e.wrong(action{stage: &c.send}, ucs.ErrInvalidParam, "the data has no valid length, or is to be received into")
	}
	if err := e.checkFlags(action{stage: &c.send}, p); err != nil {
		return nil, err
	}
	r, err := e.newSend(c, word, nil, nil)
	if err == nil {
		r.msg.data, r.onDone, r.msg.flags = *d, p.onDone(), p.flags()
	}
	return r, err
}

// data returns the data of a message that is not in Request.buf; nil if it is there. For a request
// that sends data for its parent it returns the data of the parent.
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

// total returns the number of bytes of data that the request sends.
func (r *Request) total() int {
	if d := r.data(); d != nil {
		return d.Len()
	}
	return len(r.buf)
}

// sendPart sends a header and n bytes of the message from offset off, by one bcopy.
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

// headedMsg packs a header and data into a transport buffer.
type headedMsg struct {
	head, data []byte

	from   *data.Buffer // source of the data; nil if it is in the field data
	off, n int          // range of from, in bytes
	err    error        // error of the Packer
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

// maxEager is the maximum length of a message that arrives in fragments, in bytes. The window limits
// it further.
const maxEager = 1 << 40
