package ucp

import (
	"fmt"
	"math"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// streamState is the state of a worker for streams.
type streamState struct {
	ready streams     // streams with unread bytes
	free  *StreamData // free list
	count int         // result of a blocking call, in bytes
}

// streamProtocol implements streams.
var streamProtocol = protocol{
	handlers: func(w *Worker) []handler {
		return []handler{
			{wire.AMStream, uct.AMHandlerFunc(w.handleStream)},
			{wire.AMStreamRTS, uct.AMHandlerFunc(w.handleStreamRTS)},
			{wire.AMStreamEnd, w.handleControl((*Worker).handleStreamEnd)},
			{wire.AMStreamTaken, w.handleControl((*Worker).handleStreamTaken)},
		}
	},
	aborted:   func(e *EP, st ucs.Status) { e.msgs.endStream(st) },
	stopped:   func(e *EP) { e.msgs.endReceives(ucs.StatusCanceled) },
	destroyed: func(e *EP) { e.msgs.dropStream() },
	discard:   func(e *EP) { e.msgs.dropStream() },
	discarded: func(e *EP) {
		if e.msgs != nil {
			e.msgs.stream.skipUnsent()
		}
	},
	moreCredit: func(e *EP) { e.msgs.stream.resume() },
	laneActivated: func(e *EP) {
		if e.msgs != nil {
			e.msgs.stream.resume()
		}
	},
}

// stream is the stream of an EP in both directions: ordered bytes without message boundaries. Each
// piece on the wire is a message with the offset of its first byte. Each direction may end before
// the EP does.
type stream struct {
	m *messages

	sent       uint64 // offset of the next byte to send
	starved    bool   // messages.m.sending waits for credit
	asked      int    // bytes of an RTS of messages.m.sending that the peer has not replied to; 0 if there is none
	refused    uint   // number of successive RTS whose bytes the peer did not read completely
	eagerSends int    // number of next sends that must not use rendezvous, after such a reply

	came     uint64      // offset of the next byte to receive; afterEnd after the peer has ended its stream
	receives requestList // posted receives, the oldest first; if there is one, unread is empty
	unread   streamQueue

	nextReady, prevReady *stream // in Worker.streams.ready
	ready                bool    // in Worker.streams.ready
}

// streaming returns the stream of the EP, and makes it at the first call.
func (m *messages) streaming() *stream {
	if m.stream == nil {
		m.stream = &stream{m: m}
		m.sends = m.stream
	}
	return m.stream
}

// afterEnd is the value of stream.came after the peer has ended its stream. No piece has that
// offset.
const afterEnd = math.MaxUint64

// readsStream reports whether a receive waits for bytes of the stream.
func (e *EP) readsStream() bool {
	m := e.msgs
	return m != nil && m.stream != nil && m.stream.receives.first != nil
}

// ended reports whether the peer has ended its stream.
func (s *stream) ended() bool { return s.came == afterEnd }

// handleStreamEnd handles the end of the peer's stream: it completes the posted receives.
func (w *Worker) handleStreamEnd(c *wire.Control, e *EP) bool {
	if e.state != epOpen {
		return true // the stream has no reader
	}
	e.markUsed()
	if s := e.messaging().streaming(); s.continues(c.ID) {
		s.came = afterEnd
		e.msgs.endReceives(ucs.StatusStreamEnded)
	}
	return true
}

// handleStream handles a piece of a stream.
func (w *Worker) handleStream(data []byte, _ uct.Desc) bool {
	var h wire.Head
	rest, ok := h.Unpack(data)
	if !ok {
		w.stats.badMessages.Inc()
		return false
	}
	if e := w.accept(h.EP, len(rest)); e != nil {
		e.markUsed() // an adopted connection with received data must not start over
		e.msgs.streaming().take(h.Word, rest)
	}
	return false
}

// take copies bytes to the posted receives and stores the rest. The sender was charged for the
// bytes.
func (s *stream) take(off uint64, data []byte) {
	m, w := s.m, s.m.e.w
	if !s.follows(off, len(data)) {
		return
	}
	s.came += uint64(len(data))
	n := charge(len(data))
	for r := s.receives.first; r != nil && len(data) > 0; r = s.receives.first {
		data = data[s.copyTo(r, data):]
	}
	if len(data) == 0 {
		m.returnCharge(n)
		return
	}
	s.unread.keep(w, data, n)
	w.streams.ready.add(s)
}

// follows is continues for n bytes that the sender was charged for. If it rejects them, it releases
// the charge.
func (s *stream) follows(off uint64, n int) bool {
	if off != s.came {
		s.m.received(n)
	}
	return s.continues(off)
}

// continues reports whether off is the offset of the next byte to receive. If not, the EP fails.
func (s *stream) continues(off uint64) bool {
	if off == s.came {
		return true
	}
	m := s.m
	m.e.w.stats.badMessages.Inc()
	why := fmt.Errorf("%w: its stream goes on at %d, and came up to %d", ucs.ErrRemoteInvalid, off, s.came)
	if s.ended() {
		why = fmt.Errorf("%w: its stream goes on at %d after its end", ucs.ErrRemoteInvalid, off)
	}
	m.e.markFailed(ucs.StatusRemoteInvalid, why, m.e.via(&streamReceive))
	return false
}

// copyTo copies bytes into the buffer of a receive, and completes the receive if it needs no more. It returns
// the number of bytes.
func (s *stream) copyTo(r *Request, data []byte) int {
	n := bulk.Copy(r.buf[r.off:], data)
	r.countReceived(n)
	return n
}

// countReceived adds n received bytes to a stream receive, and completes it if it needs no more.
func (r *Request) countReceived(n int) {
	r.off += n
	if r.off == len(r.buf) || !r.msg.all {
		r.complete(ucs.StatusOK)
	}
}

// endReceives completes the posted receives with st. m may be nil.
func (m *messages) endReceives(st ucs.Status) {
	if m == nil || m.stream == nil {
		return
	}
	for s := m.stream; s.receives.first != nil; {
		s.receives.first.complete(st)
	}
}

// endStream completes receives and the current send when the EP has failed or is closed. Received
// bytes can still be read. m may be nil.
func (m *messages) endStream(st ucs.Status) {
	m.endReceives(st)
	if m == nil || m.stream == nil {
		return
	}
	switch s := m.stream; {
	case s.starved:
		s.starved = false
		s.m.sending.comp.Complete(st)
	case s.asked > 0:
		s.asked = 0
		s.m.sending.comp.Count--
		s.m.sending.comp.Complete(st)
	}
}

// dropStream drops the unread bytes when the EP is destroyed. m may be nil.
func (m *messages) dropStream() {
	if m == nil || m.stream == nil {
		return
	}
	for s := m.stream; s.unread.first != nil; {
		s.pop().Release()
	}
}

// streams is a ring of the worker's streams with unread bytes. first is the stream that StreamReady
// returns next.
type streams struct{ first *stream }

func (l *streams) add(s *stream) {
	if s.ready {
		return
	}
	s.ready = true
	if l.first == nil {
		l.first, s.nextReady, s.prevReady = s, s, s
		return
	}
	s.nextReady, s.prevReady = l.first, l.first.prevReady
	s.prevReady.nextReady, l.first.prevReady = s, s
}

func (l *streams) remove(s *stream) {
	if !s.ready {
		return
	}
	s.ready = false
	s.nextReady.prevReady, s.prevReady.nextReady = s.prevReady, s.nextReady
	if l.first == s {
		l.first = s.nextReady
	}
	if l.first == s {
		l.first = nil
	}
	s.nextReady, s.prevReady = nil, nil
}

// StreamReady returns an EP with stream data that was not received, or nil; repeated calls return all of them in
// turn. It may be an EP that a peer has made and NewEP has
// not returned; the caller may use it until the peer closes it. It is UCX's
// ucp_stream_worker_poll. It makes no progress.
func (w *Worker) StreamReady() *EP {
	s := w.streams.ready.first
	if s == nil {
		return nil
	}
	w.streams.ready.first = s.nextReady
	return s.m.e
}
