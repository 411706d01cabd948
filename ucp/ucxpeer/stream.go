package ucxpeer

import (
	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucs"
)

// stream has the bytes that a peer has sent to the stream of an EP, or the receives that wait for bytes.
type stream struct {
	pieces []piece
	first  *Request // receives, linked by queued
	last   *Request
}

// streamRecv is the state of a receive of a stream.
type streamRecv struct {
	all bool // it completes only when the buffer is full
}

// StreamSend sends bytes to the stream of the peer's endpoint.
func (e *EP) StreamSend(buf []byte, p *OpParams) (*Request, error) {
	if len(buf) == 0 {
		return nil, nil
	}
	r := e.w.request(&opStreamSend, p.onDone())
	r.buf = data.Bytes(buf)
	return e.start(r)
}

// StreamRecv receives bytes of the stream into buf: with all, exactly len(buf); otherwise at least one.
// Request.Count returns the number. The receives of a stream complete in order. If the bytes have arrived already, OnDone
// is called before StreamRecv returns.
func (e *EP) StreamRecv(buf []byte, all bool, p *OpParams) (*Request, error) {
	if e.state != epOpen {
		return nil, e.stateError(opStreamRecv.name)
	}
	r := &Request{w: e.w, ep: e, op: &opStreamRecv, buf: data.Bytes(buf), status: ucs.StatusInProgress}
	r.stream.all = all
	e.list(r)
	e.adopted = true
	s := &e.stream
	if s.last == nil {
		s.first = r
	} else {
		s.last.queued = r
	}
	s.last = r
	for s.first != nil && len(s.pieces) > 0 {
		n := s.write(s.pieces[0].data)
		if n < len(s.pieces[0].data) {
			s.pieces[0].data = s.pieces[0].data[n:]
			break
		}
		s.pieces[0].release()
		s.pieces = s.pieces[1:]
	}
	s.endPartial()
	if r.onDone = p.onDone(); r.Done() && r.onDone != nil { // last, because it may receive more, or close the EP
		r.onDone(r.Err())
	}
	return r, nil
}

var (
	opStreamSend = op{name: "stream send", remote: true}
	opStreamRecv = op{name: "stream receive"}
)

func init() { opStreamSend.post = postStream }

func postStream(r *Request) error {
	for r.off < r.buf.Len() {
		var head [ucxwire.StreamLen]byte
		ucxwire.AppendStream(head[:0], ucxwire.Stream{EP: r.ep.remote})
		n, err := r.zcopy(ucxwire.IDStream, head[:], r.w.attr.AM.MaxZcopy, nil)
		if r.off += n; err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		p := r.ep.packet()
		p.n0 = copy(p.head[:], head[:])
		if err := r.sendPiece(ucxwire.IDStream, p); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) handleStream(a arrival) bool {
	m, ok := ucxwire.DecodeStream(a.data)
	if !ok {
		return false
	}
	e := w.epOf(a, m.EP)
	if e == nil {
		return w.countLate()
	}
	s := &e.stream
	n := 0
	if len(s.pieces) == 0 {
		n = s.write(m.Data)
		s.endPartial()
	}
	if n == len(m.Data) || e.state >= epFailed { // a callback may have closed the EP
		return true
	}
	s.pieces = append(s.pieces, w.buffer(a, m.Data[n:]))
	return true
}

// write copies bytes to the receives, and completes those that are full. It returns the number of bytes copied.
func (s *stream) write(b []byte) (n int) {
	for s.first != nil {
		r := s.first
		room := r.buf.Len() - r.off
		k := min(room, len(b)-n)
		_, _ = r.buf.Unpack(r.off, b[n:n+k]) // cannot fail: k bytes fit
		r.off += k
		n += k
		if r.off < r.buf.Len() {
			break
		}
		s.shift()
		r.end(ucs.StatusOK, nil)
	}
	return n
}

// endPartial completes the first receive if it has bytes and was not posted with all.
func (s *stream) endPartial() {
	if r := s.first; r != nil && r.off > 0 && !r.stream.all {
		s.shift()
		r.end(ucs.StatusOK, nil)
	}
}

func (s *stream) shift() {
	r := s.first
	if s.first = r.queued; s.first == nil {
		s.last = nil
	}
	r.queued = nil
}

// cancel removes a receive; false if it is not queued.
func (s *stream) cancel(r *Request) bool {
	for at, before := s.first, (*Request)(nil); at != nil; before, at = at, at.queued {
		if at != r {
			continue
		}
		if before == nil {
			s.first = r.queued
		} else {
			before.queued = r.queued
		}
		if s.last == r {
			s.last = before
		}
		r.queued = nil
		return true
	}
	return false
}

// drop releases unreceived bytes. The EP completes the receives.
func (s *stream) drop() {
	for i := range s.pieces {
		s.pieces[i].release()
	}
	*s = stream{}
}
