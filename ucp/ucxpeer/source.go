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

// source tracks what a connection has sent that waits here. Above the limit it is not read, so that its peer waits.
type source struct {
	w    *Worker
	conn *ucxtcp.Conn // nil: it has ended
	held int          // bytes, with what it costs to hold them
	full bool         // held, or that of the worker, is above the limit
	cut  int          // messages in pieces of which some are missing
}

// pieceOf names a message in pieces: ids are those of the sender.
type pieceOf struct {
	conn *ucxtcp.Conn
	id   uint64
}

// pieceCost is what it costs to hold a piece or a message, beside its bytes.
const pieceCost = 256

// source is the record of the connection of a message.
func (w *Worker) source(c *ucxtcp.Conn) *source {
	s := w.sources[c]
	if s == nil {
		s = &source{w: w, conn: c}
		w.sources[c] = s
	}
	return s
}

// piece is a copy of bytes of a message that wait for a receive.
type piece struct {
	data []byte
	from *source
	cost int
}

// mayHold reports whether a message without a receive may be kept, and breaks its connection if not: those of
// connections that have ended are above the limit for all.
func (w *Worker) mayHold(a arrival) bool {
	if w.held-w.cfg.MaxHeldTotal <= w.cfg.MaxHeld {
		return true
	}
	w.stats.Overflows++
	a.conn.Drop(fmt.Errorf("%w: too many messages without a receive", ucs.ErrNoMemory))
	return false
}

// hold copies b, a part of the arrival, so that it outlives the handler. One message may exceed the limit.
func (w *Worker) hold(a arrival, b []byte) piece {
	s := w.source(a.conn)
	p := piece{data: append([]byte(nil), b...), from: s, cost: len(b) + pieceCost}
	s.held += p.cost
	w.held += p.cost
	w.tooMuch = w.tooMuch || w.held > w.cfg.MaxHeldTotal
	if !s.full && (s.held > w.cfg.MaxHeld || w.tooMuch) {
		s.full = true
		w.stats.Paused++
		s.pause()
	}
	return p
}

// release frees the bytes. At half of the limit the connection is read again, and at half of that for all, the others.
func (p *piece) release() {
	s := p.from
	if s == nil {
		return
	}
	w := s.w
	s.held -= p.cost
	w.held -= p.cost
	*p = piece{}
	if w.tooMuch && w.held <= w.cfg.MaxHeldTotal/2 {
		w.tooMuch = false
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

// resume reads the connection again if there is room.
func (s *source) resume() {
	if !s.full || s.held > s.w.cfg.MaxHeld/2 || s.w.tooMuch {
		return
	}
	s.full = false
	if s.conn != nil {
		s.conn.Resume()
		s.w.engine.Raise()
	}
}

// connLeft is called by the transport when a connection has ended: nothing more comes of its messages in pieces.
func (w *Worker) connLeft(c *ucxtcp.Conn, err error) {
	if s := w.sources[c]; s != nil {
		s.conn = nil
		delete(w.sources, c)
	}
	var cut []*message
	for key, m := range w.inbound {
		if key.conn == c {
			cut = append(cut, m)
			delete(w.inbound, key)
		}
	}
	if len(cut) == 0 {
		return
	}
	w.todo = append(w.todo, func() {
		for _, m := range cut {
			m.cut(ucs.StatusConnReset, fmt.Errorf("%w: the peer left in the middle of the message: %w", ucs.ErrConnReset, err))
		}
	})
	w.engine.Raise()
}

// cut ends a message of which no more pieces come.
func (m *message) cut(st ucs.Status, err error) {
	if m.recv != nil {
		m.recv.end(st, err)
		return
	}
	m.w.tags.Remove(&m.msg)
	m.over = st
	m.drop()
}
