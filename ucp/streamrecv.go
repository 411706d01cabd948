package ucp

import (
	"context"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// streamReceive is the stage of a receive that waits for bytes of the peer. It is not in the EP's
// list of operations: a flush does not wait for it.
var streamReceive = stage{
	class: &messageClass, name: "stream receive", sized: true, role: wireup.AM,
	tryCancel: func(*Request) bool { return true }, completed: (*Request).streamReceived,
}

// StreamRecv receives bytes of the EP's stream into buf: with all set exactly len(buf) bytes, otherwise
// at least one. *n is the number of received bytes when StreamRecv returns no request, or when the request is
// complete, also after an error; these bytes cannot be received again. Several receives get bytes
// in the order in which they were posted. If a receive is canceled, or its EP fails or
// is closed, it completes at once, and gucx does not write to buf after that. StreamRecv uses only
// p.OnDone and CompleteLater.
//
// After the peer has ended its stream ([EP.StreamEnd]) or closed its EP, bytes that it has sent can still be received;
// then the error is ErrStreamEnded or, after the EP has failed, that of [EP.Err].
func (e *EP) StreamRecv(buf []byte, all bool, n *int, p *OpParams) (*Request, error) {
	*n = 0
	a := action{stage: &streamReceive, n: len(buf)}
	if p.flags() != 0 {
		if err := e.checkFlags(a, p); err != nil {
			return nil, err
		}
		r, err := e.StreamRecv(buf, all, n, &OpParams{OnDone: p.OnDone})
		return e.w.completeLater(p, r, err)
	}
	if e.state != epOpen && e.state != epFailed {
		return nil, e.refuses(a)
	}
	if len(buf) == 0 {
		return nil, nil
	}
	m := e.msgs
	if m != nil && m.stream != nil {
		if *n = m.stream.read(buf); *n == len(buf) || *n > 0 && !all {
			return nil, nil
		}
		if m.stream.ended() && e.state == epOpen {
			return nil, e.errorOf(a, ucs.ErrStreamEnded)
		}
	}
	if err := e.refuses(a); err != nil {
		return nil, err
	}
	r := e.w.newStreamReceive(e, buf, all, n)
	r.onDone = p.onDone()
	r.armOnDone()
	return r, nil
}

// StreamRecvWait is StreamRecv without all, and returns when it has received at least one byte. If ctx
// is done first, it returns the error of ctx.
func (e *EP) StreamRecvWait(ctx context.Context, buf []byte) (n int, err error) {
	if err := e.w.beginBlocking(); err != nil {
		return 0, err
	}
	r, err := e.StreamRecv(buf, false, &e.w.streams.count, nil)
	err = e.w.finishBlocking(ctx, r, err)
	return e.w.streams.count, err
}

// newStreamReceive posts a receive. *n bytes are in buf already.
func (w *Worker) newStreamReceive(e *EP, buf []byte, all bool, n *int) *Request {
	e.markUsed()
	r := w.newRequest(e, &streamReceive)
	r.msg = w.newMessageRecord()
	r.msg.count, r.msg.all = n, all
	r.buf, r.off = buf, *n
	e.messaging().streaming().receives.add(r)
	return r
}

// streamReceived removes a complete receive from the list, and stores the number of received bytes
// for the caller.
func (r *Request) streamReceived() {
	r.ep.msgs.stream.receives.remove(r)
	*r.msg.count = r.off
}

// read copies unread bytes into buf and returns their number.
func (s *stream) read(buf []byte) (n int) {
	q := &s.unread
	for q.first != nil && n < len(buf) {
		d := q.first
		k := copy(buf[n:], d.Bytes)
		n += k
		if d.Bytes = d.Bytes[k:]; len(d.Bytes) == 0 {
			s.pop().Release()
		}
	}
	return n
}

// pop removes the oldest unread data.
func (s *stream) pop() *StreamData {
	d := s.unread.pop()
	if d.m = s.m; s.unread.first == nil {
		s.m.e.w.streams.ready.remove(s)
	}
	return d
}

// StreamData is bytes of a stream that gucx has received into a buffer of its own.
type StreamData struct {
	// Bytes is the data, valid until Release.
	Bytes []byte

	m      *messages
	buf    []byte // from the worker's buffers; Bytes is a part of it
	charge int64  // charge of the messages whose last bytes are here, in bytes
	next   *StreamData
}

// StreamData returns bytes of the EP's stream that have arrived and were not received, nil if
// there are none. They belong to the caller until Release,
// and count against the peer's window. It is UCX's ucp_stream_recv_data_nb.
func (e *EP) StreamData() *StreamData {
	if m := e.msgs; m != nil && m.stream != nil && m.stream.unread.first != nil {
		return m.stream.pop()
	}
	return nil
}

// Release releases the bytes and returns credit to the sender. They must not be used afterwards. The EP may be
// closed. The goroutine that owns the worker must call it.
func (d *StreamData) Release() {
	m, n := d.m, d.charge
	m.e.w.freeStreamData(d)
	m.returnCharge(n)
}

func (w *Worker) freeStreamData(d *StreamData) {
	w.messages.buffers.put(d.buf)
	*d = StreamData{next: w.streams.free}
	w.streams.free = d
}

// streamQueue is the unread data of a stream, the oldest first.
type streamQueue struct{ first, last *StreamData }

// minStreamData is the minimum length of a buffer for stream data in bytes. Small messages share a
// buffer.
const minStreamData = 1 << 10

// keep copies the bytes of a message with charge n to the end of the queue. It fills the last
// buffer before it uses a new one.
func (q *streamQueue) keep(w *Worker, data []byte, n int64) {
	if d := q.last; d != nil {
		room := cap(d.Bytes) - len(d.Bytes)
		k := min(room, len(data))
		d.Bytes = append(d.Bytes, data[:k]...)
		data = data[k:]
	}
	if len(data) > 0 {
		d := w.newStreamData(len(data))
		d.Bytes = append(d.Bytes, data...)
		q.push(d)
	}
	q.last.charge += n
}

// newStreamData returns an empty buffer with room for at least n bytes.
func (w *Worker) newStreamData(n int) *StreamData {
	d := w.streams.free
	if d == nil {
		d = &StreamData{}
	} else {
		w.streams.free = d.next
	}
	d.next = nil
	d.buf = w.messages.buffers.get(max(n, minStreamData))
	d.Bytes = d.buf[:0]
	return d
}

func (q *streamQueue) push(d *StreamData) {
	if q.last == nil {
		q.first = d
	} else {
		q.last.next = d
	}
	q.last = d
}

func (q *streamQueue) pop() *StreamData {
	d := q.first
	if q.first = d.next; q.first == nil {
		q.last = nil
	}
	d.next = nil
	return d
}
