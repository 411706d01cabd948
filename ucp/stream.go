package ucp

import (
	"fmt"
	"math"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// streamState is what a worker has for streams.
type streamState struct {
	ready streams     // with something unread
	free  *StreamData // a list
	count int         // bytes of a blocking call
}

// streamProtocol is streams.
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
	credited: func(e *EP) { e.msgs.stream.goOn() },
	laneActivated: func(e *EP) {
		if e.msgs != nil {
			e.msgs.stream.goOn()
		}
	},
}

// stream is the stream of an EP in both directions: bytes in order, without bounds. Each
// piece that goes over the wire is a message with the offset of its first byte.
// Each direction may end before the EP does.
type stream struct {
	m *messages

	sent    uint64 // offset of the next byte to send
	starved bool   // messages.m.sending waits for credit
	asked   int    // bytes of messages.m.sending that the peer is to take, for which it waits then
	refused uint   // how often the peer has not taken them, since it has last
	bare    int    // sends yet that are not announced for that

	came     uint64      // offset of the next byte to come; afterEnd if none comes
	receives requestList // posted receives, the oldest first: nothing is unread then
	unread   streamQueue

	nextReady, prevReady *stream // in Worker.streams.ready
	ready                bool    // it is there
}

// streaming is the stream of an EP.
func (m *messages) streaming() *stream {
	if m.stream == nil {
		m.stream = &stream{m: m}
		m.sends = m.stream
	}
	return m.stream
}

// afterEnd is stream.came when the peer has ended its stream: no piece has that offset.
const afterEnd = math.MaxUint64

// ended reports that the peer has ended its stream.
func (s *stream) ended() bool { return s.came == afterEnd }

// handleStreamEnd completes the receives that wait for bytes of a stream that has ended.
func (w *Worker) handleStreamEnd(c *wire.Control, e *EP) bool {
	if e.state != epOpen {
		return true // nobody reads the stream
	}
	e.used()
	if s := e.messaging().streaming(); s.continues(c.ID) {
		s.came = afterEnd
		e.msgs.endReceives(ucs.StatusStreamEnded)
	}
	return true
}

// handleStream takes the next bytes of a stream.
func (w *Worker) handleStream(data []byte, _ uct.Desc) bool {
	var h wire.Head
	rest, ok := h.Unpack(data)
	if !ok {
		w.stats.badMessages.Inc()
		return false
	}
	if e := w.accept(h.EP, len(rest)); e != nil {
		e.used() // what has come must not go with a connection that starts over
		e.msgs.streaming().take(h.Word, rest)
	}
	return false
}

// take gives bytes that were charged to their sender to the receives that wait for them,
// and keeps the rest.
func (s *stream) take(off uint64, data []byte) {
	m, w := s.m, s.m.e.w
	if !s.follows(off, len(data)) {
		return
	}
	s.came += uint64(len(data))
	n := charge(len(data))
	for r := s.receives.first; r != nil && len(data) > 0; r = s.receives.first {
		data = data[s.give(r, data):]
	}
	if len(data) == 0 {
		m.giveBack(n)
		return
	}
	s.unread.keep(w, data, n)
	w.streams.ready.add(s)
}

// follows is continues for n bytes that were charged to their sender, and gives back the charge if they
// are refused.
func (s *stream) follows(off uint64, n int) bool {
	if off != s.came {
		s.m.received(n)
	}
	return s.continues(off)
}

// continues reports that off is where the stream goes on. Otherwise the EP fails.
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

// give copies bytes into the buffer of a receive, and ends that if it has what it waits for.
func (s *stream) give(r *Request, data []byte) int {
	n := bulk.Copy(r.buf[r.off:], data)
	r.given(n)
	return n
}

// given ends a receive of a stream if it has what it waits for, with n bytes more.
func (r *Request) given(n int) {
	r.off += n
	if r.off == len(r.buf) || !r.msg.all {
		r.settle(ucs.StatusOK)
	}
}

// endReceives ends the posted receives.
func (m *messages) endReceives(st ucs.Status) {
	if m == nil || m.stream == nil {
		return
	}
	for s := m.stream; s.receives.first != nil; {
		s.receives.first.settle(st)
	}
}

// endStream ends what is under way when the EP has failed or is closed. What has come can
// still be read.
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

// dropStream gives up what has come, when the EP goes.
func (m *messages) dropStream() {
	if m == nil || m.stream == nil {
		return
	}
	for s := m.stream; s.unread.first != nil; {
		s.pop().Release()
	}
}

// streams are those of a worker with something unread, in a ring; first is the one that
// StreamReady returns next.
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
