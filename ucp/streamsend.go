package ucp

import (
	"context"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// streamChannel sends bytes of a stream: in one message if there is credit for it, otherwise in
// pieces. The offset of a piece is assigned when the piece is posted.
var streamChannel = newStreamChannel()

func newStreamChannel() *channel {
	c := newChannel("stream send", &messageClass, channel{eagerID: wire.AMStream})
	c.announce = c.pieces
	for _, s := range []*stage{&c.send, &c.bcopy, &c.pieces, &c.announce} {
		s.choose, s.tryCancel, s.completed = (*Request).chooseStream, (*Request).streamStops, (*Request).streamSent
	}
	c.bcopy.post = (*Request).streamEager
	c.pieces.post, c.pieces.admit = (*Request).streamPieces, (*Request).streamBegins
	c.announce.post, c.announce.admit, c.announce.usesBuffer = (*Request).streamRTS, (*Request).streamBegins, true
	return c
}

// StreamSend sends bytes on the EP's stream. They arrive at the peer in order, after all bytes
// that were sent before; the peer does not see where a send ends. If the request is nil, buf belongs to the
// caller again; the sender does not learn whether the peer has read it. Config.EagerWindow limits the bytes
// that the peer has not read. Beyond that the request completes when
// the peer reads, and later messages of the EP wait too. A canceled request may have
// sent a part of buf. Large data in memory of MemAlloc may stay at the sender until the peer's next
// Progress reads it; until then the request cannot be canceled. Errors: as [EP.Err];
// ErrUnsupported if no transport of both sides has active messages.
func (e *EP) StreamSend(buf []byte, p *OpParams) (*Request, error) {
	if len(buf) < int(e.roles.atOnce) && len(buf) > 0 && (p == nil || p.Flags == 0) && e.msgs.sends != nil {
		m := e.msgs
		if m.short(wire.AMStream, m.sends.sent, buf) == nil {
			m.sends.sent += uint64(len(buf))
			return nil, nil
		}
	}
	return e.streamSend(buf, p, nil)
}

// StreamSendWait is StreamSend, and returns when buf belongs to the caller again. If ctx is done
// first, it returns the error of ctx, and n is the number of bytes that were sent.
func (e *EP) StreamSendWait(ctx context.Context, buf []byte) (n int, err error) {
	if err := e.w.beginBlocking(); err != nil {
		return 0, err
	}
	r, err := e.streamSend(buf, nil, &e.w.streams.count)
	err = e.w.finishBlocking(ctx, r, err)
	return e.w.streams.count, err
}

// streamSend is StreamSend. It stores the number of sent bytes in *sent, at once if it returns no
// request, otherwise when the request is complete. sent may be nil.
//
//go:noinline
func (e *EP) streamSend(buf []byte, p *OpParams, sent *int) (*Request, error) {
	if sent != nil {
		*sent = 0
	}
	if m := e.msgs; m != nil && m.sends != nil && len(buf) > 0 && len(buf) <= m.maxCopy && p.flags() == 0 {
		if m.copied(e.w, wire.AMStream, m.sends.sent, nil, buf) == nil {
			m.sends.sent += uint64(len(buf))
			if sent != nil {
				*sent = len(buf)
			}
			return nil, nil
		}
	}
	if len(buf) == 0 {
		return e.streamSendNothing(p)
	}
	r, err := e.newStreamSend(streamChannel, buf, p)
	if err != nil {
		return nil, err
	}
	r.msg.count = sent
	if p.flags()&PreferFastCompletion != 0 {
		r.mem = nil // rendezvous would need the buffer for longer
	}
	return r.startFlagged(p, (*Request).start)
}

// streamSendNothing is StreamSend, or StreamSendData, of no bytes.
func (e *EP) streamSendNothing(p *OpParams) (*Request, error) {
	a := action{stage: &streamChannel.send}
	err := e.refuses(a)
	if err == nil {
		err = e.checkFlags(a, p)
	}
	return e.w.completeLater(p, nil, err)
}

// newStreamSend is newSend for streams. It fails with ErrClosed after StreamEnd.
func (e *EP) newStreamSend(c *channel, buf []byte, p *OpParams) (*Request, error) {
	if err := e.streamClosed(action{stage: &c.send, n: len(buf)}); err != nil {
		return nil, err
	}
	r, err := e.newSend(c, 0, buf, p)
	if err == nil {
		e.msgs.streaming()
	}
	return r, err
}

// streamClosed returns ErrClosed after StreamEnd, and nil before.
func (e *EP) streamClosed(a action) error {
	if m := e.msgs; m != nil && m.stream != m.sends && e.state == epOpen {
		return e.errorOf(a, ucs.ErrClosed)
	}
	return nil
}

// streamEndChannel sends the end of the stream, in order with all messages of the EP. It consumes
// no credit.
var streamEndChannel = &channel{send: stage{
	class: &messageClass, name: "stream end", role: wireup.AM, inOrder: true, tryCancel: unposted, post: (*Request).sendStreamEnd,
}}

// StreamEnd ends the stream to the peer after all bytes that were sent before. The peer can
// receive those; then its receives fail with ErrStreamEnded. The EP stays open, and the peer may send: it is the
// shutdown of sockets. UCX has no such operation. A nil request means that the end was sent. Later calls of
// StreamSend and StreamEnd fail with ErrClosed, also if the request is canceled. StreamEnd uses only p.OnDone. Other
// errors: as StreamSend.
func (e *EP) StreamEnd(p *OpParams) (*Request, error) {
	r, err := e.newStreamSend(streamEndChannel, nil, p)
	if err != nil {
		return nil, err
	}
	e.msgs.sends = nil
	return r.start()
}

func (r *Request) sendStreamEnd() error {
	e := r.ep
	return e.sendControl(e.lane(wireup.AM), wire.AMStreamEnd, e.msgs.stream.sent, 0)
}

// chooseStream chooses between rendezvous, one message and pieces.
func (r *Request) chooseStream() {
	c, m := r.msg.ch, r.ep.msgs
	if m.sending == r {
		m.sending = nil
	}
	r.stage = &c.pieces
	switch {
	case m.stream.usesRendezvous(r):
		r.stage = &c.announce
	case len(r.buf) <= r.ep.lane(wireup.AM).Iface.streamPiece() && m.Credit >= charge(len(r.buf)):
		r.stage = &c.bcopy
	}
}

// nextPiece returns the length of the next piece, at most rest and limit bytes; 0 if there is too
// little credit. If credit limits the length, it is rounded down to a cache line: otherwise the
// copies of all later pieces are slow.
func (m *messages) nextPiece(rest, limit int) int {
	n := m.Piece(rest, limit)
	if n < min(rest, limit) {
		n = aligned(n)
	}
	return n
}

// streamBegins reports whether the first of several pieces may be sent. Later messages wait
// until the last piece was sent.
func (r *Request) streamBegins() bool {
	m := r.ep.msgs
	if m.nextPiece(r.total(), r.ep.lane(wireup.AM).Iface.streamPiece()) == 0 {
		if !r.ep.deliversLast() {
			m.stall()
			return false
		}
		r.off = r.total() // the peer does not read it: skip the data
	}
	m.sending = r
	m.unbind()
	return true
}

func (r *Request) streamEager() error {
	s := r.ep.msgs.stream
	r.msg.word = s.sent
	err := r.sendBcopy()
	if err == nil {
		r.msg.charged = 0
		r.off = r.total()
		s.sent += uint64(r.off)
	}
	return err
}

// streamPieces sends as many pieces as there are resources and credit for.
func (r *Request) streamPieces() error {
	x, w, m := r.ep.lane(wireup.AM), r.worker, r.ep.msgs
	s, limit := m.stream, x.Iface.streamPiece()
	for r.off < len(r.buf) {
		n := m.nextPiece(len(r.buf)-r.off, limit)
		if n == 0 {
			s.starved = true
			m.stall()
			return errNoCredit
		}
		h := wire.Head{Word: s.sent, EP: r.ep.link.conn.MessageEP()}
		if err := w.messages.eager.send(x.AM, wire.AMStream, h, nil, r.buf[r.off:r.off+n]); err != nil {
			return err
		}
		m.Credit -= charge(n)
		s.sent += uint64(n)
		r.off += n
		r.flags |= reqPosted
	}
	return nil
}

// resume continues the send that waits for credit, if there is such a send and a lane for messages. s may be
// nil.
func (s *stream) resume() {
	if s != nil && s.starved && s.m.e.lane(wireup.AM) != nil {
		s.starved = false
		s.m.sending.proceed()
	}
}

// streamStops reports whether a stream send can be canceled now: between two pieces, but not while
// the peer reads from the buffer.
func (r *Request) streamStops() bool {
	s := r.ep.msgs.stream
	return r.flags&(reqQueued|reqWaiting) != 0 || s.starved && s.m.sending == r
}

// streamSent is called when a stream send is complete. It starts the messages that wait behind a
// send in pieces.
func (r *Request) streamSent() {
	if r.msg.count != nil {
		*r.msg.count = r.off
	}
	e := r.ep
	s := e.msgs.stream
	if s.m.sending != r {
		return
	}
	s.m.sending, s.starved = nil, false
	if e.state < epFailed {
		e.replayMessages()
	}
}

// skipUnsent completes the stream send that waits for credit: the peer does not read the data, and
// unreceived tagged messages may have consumed the whole window. s may be nil.
func (s *stream) skipUnsent() {
	if s != nil && s.starved {
		s.m.sending.off = s.m.sending.total()
		s.resume()
	}
}
