package ucp

import (
	"context"
	"encoding/binary"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// TagInfo describes a tagged message.
type TagInfo struct {
	Tag    uint64 // the tag that the sender has set
	Length int    // length of the message in bytes, also if it is longer than the buffer
	From   *EP    // the connection to the sender, for replies
}

// tagState is the state of a worker for tagged messages.
type tagState struct {
	slowTagRecv bool // the worker is closed, matcher is not nil, or blocked is not empty: one check in TagRecv for all of them
	table       match.Table[*tagRecv, *TagMessage]
	matcher     tagMatcher // nil: only table matches messages
	idle        *TagMessage
	idleCount   int              // length of the list idle
	leftFirst   *messages        // messages of destroyed EPs with unexpected messages, the oldest first; see leftover.go
	leftLast    *messages        // the newest of them
	info        TagInfo          // result of a blocking receive
	sources     tagSources       // see RestrictTags
	blocked     []*blockedSender // peers without credit; see blockedsender.go
	probes      []queuedProbe    // probes without a reply, in the order of their numbers
	lastProbe   uint64           // number of the newest probe
}

// tagMessages is the state of an EP for tagged messages.
type tagMessages struct {
	source     uint64         // bits of the peer's tags under tagSources.mask
	unexpected tagList        // unexpected messages
	next       *messages      // list of the messages of destroyed EPs with unexpected messages,
	prev       *messages      // in the order in which the EPs were destroyed; see leftover.go
	queue      *sendQueue     // nil until a message has lacked credit
	sender     *blockedSender // nil until the peer has lacked credit for a message
}

// tagProtocol implements tagged messages.
var tagProtocol = protocol{
	init: func(w *Worker) { w.tag.table.Init() },
	handlers: func(w *Worker) []handler {
		return []handler{
			{wire.AMTag, w.tagHandler()},
			{wire.AMTagSync, w.withArrivalOrder(uct.AMHandlerFunc(w.handleTagSync))},
			{wire.AMTagFirst, w.withArrivalOrder(uct.AMHandlerFunc(w.handleTagFirst))},
			{wire.AMTagRTS, w.withArrivalOrder(uct.AMHandlerFunc(w.handleTagRTS))},
			{wire.AMReply, uct.AMHandlerFunc(w.handleReply)},
			{wire.AMOffer, uct.AMHandlerFunc(w.handleOffer)},
			{wire.AMQuery, uct.AMHandlerFunc(w.handleQuery)},
		}
	},
	accepted:  func(e *EP) { e.w.trimLeft(e.peer.Addr.UUID()) },
	messaging: func(e *EP) { e.msgs.tag.source = e.w.tag.sources.sourceOf(e.peer.Addr.Key) },
	deferred: func(e *EP) {
		if e.msgs != nil {
			e.msgs.tag.queue.reply()
			e.msgs.tag.sender.expireReserved()
		}
	},
	ready: func(e *EP) {
		if e.msgs != nil && e.msgs.tag.queue.replies() {
			e.w.schedule(e)
		}
	},
	granted: func(e *EP) { e.msgs.tag.sender.unblock() },
	lanesClosing: func(e *EP, _ ucs.Status) {
		if e.msgs != nil {
			e.msgs.tag.queue = nil
		}
	},
	incomingLost: func(e *EP, st ucs.Status) { e.msgs.loseAnnounced(st) },
	discard: func(e *EP) {
		if e.msgs != nil {
			e.msgs.tag.sender.returnReserved()
		}
	},
	destroyed: func(e *EP) {
		if e.msgs != nil {
			e.msgs.leave()
			e.msgs.tag.sender.unblock()
		}
	},
	closing:   func(w *Worker) { w.tag.slowTagRecv = true },
	epsClosed: (*Worker).cancelReceives,
}

var tagChannel = newTagChannel()

func newTagChannel() *channel {
	c := withAnnouncements(newChannel("tag send", &tagClass, channel{
		eagerID: wire.AMTag, sync: wire.AMTagSync, first: wire.AMTagFirst, rts: wire.AMTagRTS, rndv: tagRndv,
	}))
	for _, s := range []*stage{&c.send, &c.bcopy, &c.zcopy, &c.pieces, &c.announce, &c.waitAck} {
		s.choose, s.admit = (*Request).chooseTag, (*Request).admitTag
	}
	return c
}

// tagClass is the class of tagged sends. Those without credit are in a queue that the receiver can
// query.
var tagClass = func() class {
	c := withDropRequest(messageClass)
	c.waits, c.dequeued = (*Request).enterQueue, (*Request).leaveQueue
	c.requestDrop, c.answered = (*Request).requestTagDrop, (*Request).acceptOffer
	return c
}()

// TagSend sends a message to the peer's worker, where it matches a receive with the same tag
// in the bits of the receive's mask; see [Worker.TagRecv]. Messages of an EP are matched in the
// order in which they are sent. If the request is nil, buf belongs to the caller again; only the request of
// [EP.TagSendSync] reports that the message was matched. If the message has
// Config.RndvThresh bytes or more, or the peer has no room, the data remains at the sender until a
// receive matches (rendezvous); until then [Request.Cancel] can withdraw it. Errors: as [EP.Err];
// ErrInvalidParam if OpParams.Mem does not cover buf, except for a short message, which does not use it; ErrUnsupported if no
// transport of both sides has active messages.
func (e *EP) TagSend(tag uint64, buf []byte, p *OpParams) (*Request, error) {
	if len(buf) < int(e.roles.atOnce) && (p == nil || p.Flags == 0) {
		m := e.msgs
		m.Credit -= charge(len(buf))
		if m.Credit >= 0 {
			if m.words.AMWords(wire.AMTag, tag, m.name, buf) == nil {
				return nil, nil
			}
		}
		e.msgs.Credit += charge(len(buf))
		return e.tagSendSlow(tag, buf[:len(buf):len(buf)], p) // so that the capacity of buf need not be saved across the call
	}
	return e.tagSendSlow(tag, buf, p)
}

//go:noinline
func (e *EP) tagSendSlow(tag uint64, buf []byte, p *OpParams) (*Request, error) {
	if p != nil && p.Flags != 0 {
		return e.tagSendFlagged(tag, buf, p, false)
	}
	switch m := e.msgs; {
	case m == nil || m.maxCopy < 0:
	case p == nil || p.Mem == nil || len(buf) <= m.maxShort:
		if len(buf) <= m.maxCopy && m.unheaded(e.w, wire.AMTag, tag, buf) == nil {
			return nil, nil
		}
	case len(buf) >= m.rndvFrom(tagRndv, (*region.Mem)(p.Mem), 0):
		if r := m.announcedAtOnce(tagChannel, tag, buf, p); r != nil {
			return r, nil
		}
	case len(buf) <= m.maxCopy && len(buf) < m.minZcopy && (*region.Mem)(p.Mem).Covers(buf):
		if m.unheaded(e.w, wire.AMTag, tag, buf) == nil {
			return nil, nil
		}
	}
	if x := e.w.tag.matcher; x != nil {
		return x.send(e, tag, buf, p, false)
	}
	r, err := e.newSend(tagChannel, tag, buf, p)
	if err != nil {
		return nil, err
	}
	return r.start()
}

// TagSendSync is TagSend, but its request completes when a receive of the peer has matched the message, or
// with ErrCanceled when the peer drops the message. EP.Flush does not wait for that; EP.Close with CloseFlush does.
func (e *EP) TagSendSync(tag uint64, buf []byte, p *OpParams) (*Request, error) {
	if p.flags() != 0 {
		return e.tagSendFlagged(tag, buf, p, true)
	}
	if x := e.w.tag.matcher; x != nil {
		return x.send(e, tag, buf, p, true)
	}
	r, err := e.newSend(tagChannel, tag, buf, p)
	if err != nil {
		return nil, err
	}
	r.msg.acked = true
	return r.start()
}

// tagSendFlagged is TagSend, or TagSendSync, with flags.
func (e *EP) tagSendFlagged(tag uint64, buf []byte, p *OpParams, sync bool) (*Request, error) {
	r, err := e.newSend(tagChannel, tag, buf, p)
	if err != nil {
		return nil, err
	}
	r.msg.acked = sync
	return r.startTaggedFlagged(p)
}

// TagSendWait is TagSend, and returns when buf belongs to the caller again. If ctx is done first, it returns the
// error of ctx, and buf belongs to the caller: a message of which nothing was
// posted is not sent.
func (e *EP) TagSendWait(ctx context.Context, tag uint64, buf []byte, p *OpParams) error {
	if err := e.w.beginBlocking(); err != nil {
		return err
	}
	r, err := e.TagSend(tag, buf, p)
	return e.w.finishBlocking(ctx, r, err)
}

// TagSendSyncWait is TagSendSync, and returns when the message is matched. If ctx is done
// first, it returns the error of ctx; a message that was posted is still delivered.
func (e *EP) TagSendSyncWait(ctx context.Context, tag uint64, buf []byte, p *OpParams) error {
	if err := e.w.beginBlocking(); err != nil {
		return err
	}
	r, err := e.TagSendSync(tag, buf, p)
	return e.w.finishBlocking(ctx, r, err)
}

// tagArrivals is a Worker as the handler of complete tagged messages.
type tagArrivals Worker

// HandleAM copies a tagged message to the receive that matches, or stores it as unexpected. The
// fast path is for a message that matches the first posted receive and arrived over the same
// connection as the latest message.
func (a *tagArrivals) HandleAM(data []byte, _ uct.Desc) bool {
	w, n := (*Worker)(a), len(data)-wire.HeadLen
	if len(data) > wire.HeadLen && w.tag.table.Expects() {
		r, m := w.tag.table.First(), w.messages.latest
		if r.Ready(binary.LittleEndian.Uint64(data)) && m.self == binary.LittleEndian.Uint64(data[wire.WordLen:]) {
			v := r.Owner
			buf, q, left := v.buf, v.req, m.Left(n)
			if n <= len(buf) && q.flags == 0 && left >= 0 {
				m.Quota = left
				switch {
				case n == wire.WordLen && v.info == nil:
					binary.LittleEndian.PutUint64(buf, binary.LittleEndian.Uint64(data[wire.HeadLen:]))
				case n < wire.WordLen || n > 2*wire.WordLen || v.info != nil:
					w.fillFirst(v, data)
					return false
				default: // as shortcopy.Words
					last := binary.LittleEndian.Uint64(data[len(data)-wire.WordLen : len(data) : len(data)])
					binary.LittleEndian.PutUint64(buf, binary.LittleEndian.Uint64(data[wire.HeadLen:]))
					binary.LittleEndian.PutUint64(buf[n-wire.WordLen:n:n], last)
				}
				w.tag.table.TakeFirst(r)
				v.buf, v.mem, q.flags = nil, nil, recvDone
				return false
			}
		}
	}
	w.handleTag(data)
	return false
}

// fillFirst completes v, the first receive, with a message that fits into its buffer.
//
//go:noinline
func (w *Worker) fillFirst(v *tagRecv, data []byte) {
	w.tag.table.TakeFirst(&v.node)
	v.setInfo(w.messages.latest.e, binary.LittleEndian.Uint64(data), len(data)-wire.HeadLen)
	buf := v.buf
	v.buf, v.mem, v.info = nil, nil, nil
	v.req.flags = recvDone
	bulk.Copy(buf, data[wire.HeadLen:]) // at the end, so that no value is saved across the call
}

// handleTag is HandleAM of tagArrivals without the fast path.
//
//go:noinline
func (w *Worker) handleTag(data []byte) {
	var h wire.Head
	rest, ok := h.Unpack(data)
	if !ok {
		w.stats.badMessages.Inc()
		return
	}
	switch e := w.accept(h.EP, len(rest)); {
	case e == nil:
	case w.maySend(e.msgs, h.Word):
		w.takeTagged(e, h.Word, rest, 0)
	default:
		w.refuseTagged(e, len(rest))
	}
}

// handleTagSync is handleTag for a message whose sender waits until it is matched.
func (w *Worker) handleTagSync(data []byte, _ uct.Desc) bool {
	var h wire.Head
	var p wire.Part
	rest, ok := h.Unpack(data)
	if ok {
		rest, ok = p.Unpack(rest)
	}
	if !ok || p.ID == 0 {
		w.stats.badMessages.Inc()
		return false
	}
	e := w.accept(h.EP, len(rest))
	switch {
	case e == nil:
	case w.maySend(e.msgs, h.Word):
		w.takeTagged(e, h.Word, rest, p.ID)
	default:
		w.refuseTagged(e, len(rest))
		e.msgs.acknowledge(p.ID, ucs.StatusCanceled)
	}
	return false
}

// takeTagged copies a complete message to the receive that matches, or stores it.
// The sender was charged for it. sync is the id for the acknowledgment, 0 if the sender does not
// wait for one.
func (w *Worker) takeTagged(e *EP, tag uint64, data []byte, sync uint64) {
	found := w.tag.table.Arrive(tag)
	if found == nil {
		w.storeEager(e, tag, data, sync)
		return
	}
	v := found.Owner
	m := e.msgs
	m.received(len(data))
	if sync != 0 {
		m.acknowledge(sync, ucs.StatusOK)
	}
	v.write(0, data)
	v.completeWith(e, tag, len(data))
}

// handleTagFirst handles the first fragment of a tagged message. The receive is matched now and
// gets all fragments.
func (w *Worker) handleTagFirst(data []byte, _ uct.Desc) bool {
	var h wire.Head
	var p wire.Part
	rest, ok := h.Unpack(data)
	if ok {
		rest, ok = p.Unpack(rest)
	}
	if !ok || p.Value > maxEager || uint64(len(rest)) > p.Value {
		w.stats.badMessages.Inc()
		return false
	}
	total := int(p.Value)
	e := w.accept(h.EP, total)
	if e == nil {
		return false
	}
	if !w.maySend(e.msgs, h.Word) {
		w.refuseTagged(e, total)
		return false
	}
	if found := w.tag.table.Arrive(h.Word); found != nil {
		v := found.Owner
		v.tag = h.Word
		w.newInbound(e, p.ID, total, v).take(0, rest)
		return false
	}
	u := w.newTagMessage(e, h.Word, total)
	u.in, u.buf = w.newInbound(e, p.ID, total, u), w.messages.buffers.get(total)
	u.storeUnexpected()
	u.in.take(0, rest)
	return false
}

// TagSendData is [EP.TagSend] with any [Data]. Data other than one buffer is copied, except for a list
// that is put into the receiver's buffer by rendezvous. A Packer is
// called until the request is complete, by this call or from Progress. A Packer that violates
// its contract fails the EP with ErrInvalidParam, because the peer has received a part of the message.
func (e *EP) TagSendData(tag uint64, d Data, p *OpParams) (*Request, error) {
	if b, ok := d.buffer.Contiguous(); ok {
		return e.TagSend(tag, b, p)
	}
	r, err := e.newSendData(tagChannel, tag, &d.buffer, p)
	if err != nil {
		return nil, err
	}
	return r.startTaggedFlagged(p)
}

// TagSendSyncData is [EP.TagSendSync] with any [Data], as in [EP.TagSendData]: the request completes when a receive
// has matched the message; the data then belongs to the caller again.
func (e *EP) TagSendSyncData(tag uint64, d Data, p *OpParams) (*Request, error) {
	if b, ok := d.buffer.Contiguous(); ok {
		return e.TagSendSync(tag, b, p)
	}
	r, err := e.newSendData(tagChannel, tag, &d.buffer, p)
	if err != nil {
		return nil, err
	}
	r.msg.acked = true
	return r.startTaggedFlagged(p)
}

// startTaggedFlagged is startFlagged for a tagged message. A message through a queue does not complete in the call.
func (r *Request) startTaggedFlagged(p *OpParams) (*Request, error) {
	if w := r.worker; w.tag.matcher != nil && p.flags()&CompleteNow != 0 {
		w.recycle(r)
		return nil, uct.ErrNoResource
	}
	return r.startFlagged(p, (*Request).startTagged)
}

func (r *Request) startTagged() (*Request, error) {
	if x := r.worker.tag.matcher; x != nil {
		return x.start(r)
	}
	return r.start()
}
