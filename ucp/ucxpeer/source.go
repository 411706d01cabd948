package ucxpeer

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ucxtcp"
)

// arrival is a message while its handler runs.
type arrival struct {
	conn *ucxtcp.Conn
	data []byte
}

// source counts the unexpected data of a connection. Above a limit the connection is not read, so that its peer waits.
type source struct {
	w          *Worker
	conn       *ucxtcp.Conn // nil when it has ended
	buffered   int          // bytes, including pieceCost
	paused     bool         // buffered, or that of the worker, has exceeded the limit
	incomplete int          // messages of which fragments are missing
}

// pieceOf identifies a message in fragments. The sender has assigned the id.
type pieceOf struct {
	conn *ucxtcp.Conn
	id   uint64
}

// pieceCost is the overhead of a buffered fragment or message, in bytes.
const pieceCost = 256

// source returns the record of a connection.
func (w *Worker) source(c *ucxtcp.Conn) *source {
	s := w.sources[c]
	if s == nil {
		s = &source{w: w, conn: c}
		w.sources[c] = s
	}
	return s
}

// piece is a copy of bytes of a message without a receive.
type piece struct {
	data []byte
	from *source
	cost int
}

// canBuffer reports whether a message without a receive may be buffered. If not, because the messages of connections that have
// ended exceed the total limit, it breaks the connection.
func (w *Worker) canBuffer(a arrival) bool {
	if w.buffered-w.cfg.MaxBufferedTotal <= w.cfg.MaxBuffered {
		return true
	}
	w.stats.Overflows++
	a.conn.Drop(fmt.Errorf("%w: too many messages without a receive", ucs.ErrNoMemory))
	return false
}

// buffer copies b, a part of the arrival, for use after the handler has returned. One message may exceed the limit.
func (w *Worker) buffer(a arrival, b []byte) piece {
	s := w.source(a.conn)
	p := piece{data: append([]byte(nil), b...), from: s, cost: len(b) + pieceCost}
	s.buffered += p.cost
	w.buffered += p.cost
	w.overLimit = w.overLimit || w.buffered > w.cfg.MaxBufferedTotal
	if !s.paused && (s.buffered > w.cfg.MaxBuffered || w.overLimit) {
		s.paused = true
		w.stats.Paused++
		s.pause()
	}
	return p
}

// release frees the bytes. At half of its limit a paused connection is read again; at half of the total limit all are.
func (p *piece) release() {
	s := p.from
	if s == nil {
		return
	}
	w := s.w
	s.buffered -= p.cost
	w.buffered -= p.cost
	*p = piece{}
	if w.overLimit && w.buffered <= w.cfg.MaxBufferedTotal/2 {
		w.overLimit = false
		for _, s := range w.sources {
			s.resume()
		}
		return
	}
	s.resume()
}

func (s *source) pause() {
	if s.conn != nil {
		s.conn.Hold()
	}
}

// resume resumes a paused connection if it is below half of its limit.
func (s *source) resume() {
	if !s.paused || s.buffered > s.w.cfg.MaxBuffered/2 || s.w.overLimit {
		return
	}
	s.paused = false
	if s.conn != nil {
		s.conn.Resume()
		s.w.engine.Raise()
	}
}

// connEnded is called by the transport when a connection has ended. Its incomplete messages fail.
func (w *Worker) connEnded(c *ucxtcp.Conn, err error) {
	if s := w.sources[c]; s != nil {
		s.conn = nil
		delete(w.sources, c)
	}
	var incomplete []*message
	for key, m := range w.inbound {
		if key.conn == c {
			incomplete = append(incomplete, m)
			delete(w.inbound, key)
		}
	}
	if len(incomplete) == 0 {
		return
	}
	w.todo = append(w.todo, func() {
		for _, m := range incomplete {
			m.endIncomplete(ucs.StatusConnReset, fmt.Errorf("%w: the connection ended before the message was complete: %w", ucs.ErrConnReset, err))
		}
	})
	w.engine.Raise()
}

// endIncomplete fails the receive of a message of which no more fragments arrive, or removes the message.
func (m *message) endIncomplete(st ucs.Status, err error) {
	if m.recv != nil {
		m.recv.end(st, err)
		return
	}
	m.w.tags.Remove(&m.msg)
	m.result = st
	m.drop()
}
