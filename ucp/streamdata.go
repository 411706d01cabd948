package ucp

import (
	"math"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Data that is not contiguous is sent on a stream in pieces. A receive into a list is a request without a buffer, and
// a child of it for one slice of the list at a time, which is a receive as any other.

// streamDataChannel sends such data.
var streamDataChannel = newStreamDataChannel()

func newStreamDataChannel() *channel {
	c := newStreamChannel()
	c.send.choose, c.pieces.choose = (*Request).chooseStreamPieces, (*Request).chooseStreamPieces
	c.pieces.post = (*Request).streamDataPieces
	return c
}

// StreamSendData is [EP.StreamSend] with any [Data]. The data is copied. It belongs to gucx until the request is
// complete; a [Packer] is called until then, by this call or from Progress. A Packer that violates its contract fails
// the EP with ErrInvalidParam. Other errors: as StreamSend; ErrInvalidParam for data to receive into.
func (e *EP) StreamSendData(d Data, p *OpParams) (*Request, error) {
	if b, ok := d.buffer.Contiguous(); ok {
		return e.StreamSend(b, p)
	}
	a := action{stage: &streamDataChannel.send, n: d.buffer.Len()}
	if a.n == 0 {
		return e.streamSendNothing(p)
	}
	if err := e.streamClosed(a); err != nil {
		return nil, err
	}
	r, err := e.newSendData(streamDataChannel, 0, &d.buffer, p)
	if err != nil {
		return nil, err
	}
	e.msgs.streaming()
	return r.startFlagged(p, (*Request).start)
}

// chooseStreamPieces is chooseStream for data that is not contiguous.
func (r *Request) chooseStreamPieces() {
	if m := r.ep.msgs; m.sending == r {
		m.sending = nil
	}
	r.stage = &r.msg.ch.pieces
}

// streamDataPieces is streamPieces for data that is not contiguous.
func (r *Request) streamDataPieces() error {
	x, w, m := r.ep.lane(wireup.AM), r.worker, r.ep.msgs
	s, limit, total := m.stream, x.Iface.streamPiece(), r.total()
	for r.off < total {
		n := m.nextPiece(total-r.off, limit)
		if n == 0 {
			s.starved = true
			m.stall()
			return errNoCredit
		}
		h := wire.Head{Word: s.sent, EP: r.ep.link.conn.MessageEP()}
		w.msg.b = h.Append(w.msg.b[:0])
		if err := r.sendPart(x, wire.AMStream, w.msg.b, r.off, n); err != nil {
			return err
		}
		m.Credit -= charge(n)
		s.sent += uint64(n)
		r.off += n
		r.flags |= reqPosted
	}
	return nil
}

// streamListReceive is the stage of a receive into a list, and streamSliceReceive that of its child.
var (
	streamListReceive = stage{
		class: &messageClass, name: "stream receive", sized: true, role: wireup.AM,
		tryCancel: (*Request).cancelStreamSlice, completed: func(r *Request) { *r.msg.count = r.off },
	}
	streamSliceReceive = stage{
		class: &messageClass, name: "stream receive", sized: true, role: wireup.AM,
		tryCancel: func(*Request) bool { return true },
	}
)

func init() { streamSliceReceive.completed = (*Request).streamSliceReceived } // it names the stage

// StreamRecvData is [EP.StreamRecv] into a list of [Buffers]: with all set into the whole list, otherwise at least one
// byte; then a receive that has to wait uses only the first slice that is not empty. The list belongs to gucx until
// the request is complete. Errors: as StreamRecv; ErrInvalidParam for a [Packer], and for an [Unpacker], since a
// stream has no end of a message that it could wait for. StreamRecvData uses only p.OnDone and CompleteLater.
func (e *EP) StreamRecvData(d Data, all bool, n *int, p *OpParams) (*Request, error) {
	if b, ok := d.buffer.Contiguous(); ok {
		return e.StreamRecv(b, all, n, p)
	}
	*n = 0
	if p.flags() != 0 {
		if err := e.checkFlags(action{stage: &streamListReceive}, p); err != nil {
			return nil, err
		}
		r, err := e.StreamRecvData(d, all, n, &OpParams{OnDone: p.OnDone})
		return e.w.completeLater(p, r, err)
	}
	total := d.buffer.Len()
	if d.buffer.Validate() != nil || d.buffer.Generic() {
		return nil, e.wrong(action{stage: &streamListReceive}, ucs.ErrInvalidParam, "the data is not a list of valid length")
	}
	a := action{stage: &streamListReceive, n: total}
	if e.state != epOpen && e.state != epFailed {
		return nil, e.refuses(a)
	}
	if s := e.unreadStream(); s != nil {
		for one := [1]uct.IOV{}; *n < total && s.unread.first != nil; {
			_, k := d.buffer.Slices(*n, math.MaxInt, one[:])
			if k == 0 {
				break // the caller has changed the list
			}
			*n += s.read(one[0].Buf)
		}
		if *n == total || *n > 0 && !all {
			return nil, nil
		}
		if s.ended() && e.state == epOpen {
			return nil, e.errorOf(a, ucs.ErrStreamEnded)
		}
	}
	if err := e.refuses(a); err != nil {
		return nil, err
	}
	e.markUsed()
	r := e.w.newRequest(e, &streamListReceive)
	r.msg, r.off, r.onDone = e.w.newMessageRecord(), *n, p.onDone()
	r.msg.data, r.msg.count, r.msg.all = d.buffer, n, all
	if q := r.nextStreamSlice(); q != nil {
		e.messaging().streaming().receives.add(q)
	}
	r.posted()
	return r.started()
}

// unreadStream returns the stream of the EP; nil if there is none.
func (e *EP) unreadStream() *stream {
	if e.msgs == nil {
		return nil
	}
	return e.msgs.stream
}

// nextStreamSlice returns a receive into the next slice of the list of r, as its child; nil if the caller has changed
// the list.
func (r *Request) nextStreamSlice() *Request {
	var one [1]uct.IOV
	if _, k := r.msg.data.Slices(r.off, math.MaxInt, one[:]); k == 0 {
		r.fail(ucs.StatusInvalidParam)
		return nil
	}
	w := r.worker
	q := w.newRequest(r.ep, &streamSliceReceive)
	q.msg, q.buf, q.parent = w.newMessageRecord(), one[0].Buf, r
	q.msg.all = r.msg.all
	q.Release()
	r.comp.Count++
	return q
}

// streamSliceReceived is called when the receive of a slice is complete. It posts that of the next slice, before the
// receives that the caller has posted later.
func (r *Request) streamSliceReceived() {
	list, receives := r.parent, &r.ep.msgs.stream.receives
	receives.remove(r)
	list.off += r.off
	if r.status == ucs.StatusOK && list.msg.all && list.off < list.msg.data.Len() {
		if q := list.nextStreamSlice(); q != nil {
			receives.addFirst(q)
		}
	}
}

// cancelStreamSlice cancels the receive of the slice that a receive into a list waits for.
func (r *Request) cancelStreamSlice() bool {
	for q := range r.ep.msgs.stream.receives.all {
		if q.parent == r {
			return q.Cancel()
		}
	}
	return false
}
