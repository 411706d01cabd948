package ucp

import (
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Long sends of a stream out of memory that the peer has mapped are announced: the peer reads them
// at once, into the receives that wait or a buffer of its own, and says how much it has taken. So
// they are copied once, and are never waiting for somebody to read them. What the peer does not take,
// as the memory is not mapped there, is sent in pieces.

// minStreamAsked is the least length of a send that is announced, in bytes: the next one waits until
// this has been taken, for as long as two messages take, while pieces follow each other.
const minStreamAsked = 32 << 10

// maxBare bounds how many sends go in pieces after the peer has not taken one, as a power of two.
const maxBare = 10

// asks reports that a send that begins now is to be announced.
func (s *stream) asks(r *Request) bool {
	e, mem := r.ep, r.mem
	if len(r.buf) < minStreamAsked || mem == nil || r.off > 0 || s.m.Most < 2*minStreamAsked {
		return false
	}
	i, preferred := e.transport(wireup.RMA), e.w.ctx.cfg.rndvScheme()
	if i == nil || !mem.AllocatedBy(i.domain) || mem.Access()&uct.AccessRemoteRead == 0 || preferred != proto.Auto && preferred != proto.Get {
		return false
	}
	if len(mem.Key()) > e.lane(wireup.AM).Iface.attr.AM.MaxBcopy-wire.HeadLen-wire.RTSLen {
		return false
	}
	x := e.lane(wireup.RMA)
	if x == nil {
		e.need(wireup.RMA) // for the next time
		return false
	}
	if x.Mapped == nil { // the peer has as little mapped
		return false
	}
	if s.bare > 0 {
		s.bare--
		return false
	}
	return true
}

// streamAsks announces as much as there is credit for, of which half may be used for one
// announcement, and waits for the peer's answer.
func (r *Request) streamAsks() error {
	x, w, m := r.ep.lane(wireup.AM), r.worker, r.ep.msgs
	s, rest := m.stream, r.buf[r.off:]
	if len(rest) == 0 {
		return nil
	}
	n := m.nextPiece(len(rest), int(m.Most/2))
	if n == 0 {
		s.starved = true
		m.stall()
		return errNoCredit
	}
	h := wire.Head{Word: s.sent, EP: r.ep.link.conn.MessageEP()}
	rts := wire.RTS{ID: s.sent + uint64(n), Length: uint64(n), Addr: r.mem.AddrOf(rest), Key: r.mem.Key()}
	w.msg.b = rts.Append(h.Append(w.msg.b[:0]))
	if _, err := x.AM.AMBcopy(wire.AMStreamRTS, &w.msg); err != nil {
		return err
	}
	m.Credit -= charge(n)
	s.asked = n
	r.comp.Count++ // the peer reads from the buffer
	r.flags |= reqPosted
	return errNoCredit
}

// handleStreamTaken goes on with a send of which the peer has taken what was announced, or a part.
func (w *Worker) handleStreamTaken(c *wire.Control, e *EP) bool {
	m := e.msgs
	if m == nil || m.stream == nil || m.stream.asked == 0 {
		return false
	}
	s, r := m.stream, m.sending
	if c.ID != s.sent+uint64(s.asked) || c.Value > uint64(s.asked) {
		return false
	}
	n, left := int(c.Value), s.asked-int(c.Value)
	s.asked = 0
	r.comp.Count--
	s.sent += uint64(n)
	r.off += n
	if left == 0 {
		s.refused = 0
	} else {
		m.Credit += int64(left)
		s.refused = min(s.refused+1, maxBare)
		s.bare = 1 << s.refused
		r.stage = &r.msg.ch.pieces
	}
	if st := r.stopped(); st != ucs.StatusOK {
		r.fail(st)
		r.posted()
		return true
	}
	if e.lane(wireup.AM) == nil { // it moves; see goOn
		s.starved = true
		return true
	}
	r.proceed()
	return true
}

// handleStreamRTS takes the next bytes of a stream, which are with their sender yet.
func (w *Worker) handleStreamRTS(data []byte, _ uct.Desc) bool {
	var h wire.Head
	var p wire.RTS
	rest, ok := h.Unpack(data)
	if ok {
		rest, ok = p.Unpack(rest)
	}
	if !ok || len(rest) != 0 || p.ID == 0 || p.Length == 0 || p.Length > maxMessage {
		w.stats.badMessages.Inc()
		return false
	}
	if e := w.accept(h.EP, int(p.Length)); e != nil {
		e.used()
		e.msgs.streaming().takeAnnounced(h.Word, &p)
	} else if e = w.connected(h.EP); e != nil && e.state != epOpen {
		e.control(takenControl, p.ID, p.Length) // nobody reads them any more, and their sender need not wait
	}
	return false
}

// takeAnnounced is take of bytes that are read from the sender's memory, as many as can be. The
// others are not charged to the sender any more.
func (s *stream) takeAnnounced(off uint64, p *wire.RTS) {
	m, e := s.m, s.m.e
	if !s.follows(off, int(p.Length)) {
		return
	}
	a := announcedBy(e, p)
	n, kept := 0, (*StreamData)(nil)
	if key := a.open(a.n); key != nil {
		n, kept = s.fetch(&a, key)
		keyDone(key)
	}
	s.came += uint64(n)
	m.Hold(-int64(a.n - n))
	if kept != nil {
		kept.charge = charge(n)
	} else {
		m.giveBack(charge(n))
	}
	e.control(takenControl, a.id, uint64(n))
}

// fetch reads announced bytes into the receives that wait for them, and what is left into a buffer,
// if there is anything. It returns how many it has read.
func (s *stream) fetch(a *announced, key *RKey) (n int, kept *StreamData) {
	e, w := s.m.e, s.m.e.w
	x := e.lane(wireup.RMA)
	if x == nil {
		e.need(wireup.RMA) // for the next time
		return 0, nil
	}
	opened, err := key.resolve(x.Iface.index, x.Remote)
	if err != nil || x.Mapped == nil {
		return 0, nil
	}
	for r := s.receives.first; r != nil && n < a.n; r = s.receives.first {
		to := r.buf[r.off:min(len(r.buf), r.off+a.n-n)]
		if !x.Mapped.GetMapped(to, a.addr+uint64(n), opened) {
			return n, nil
		}
		n += len(to)
		r.given(len(to))
	}
	if n == a.n {
		return n, nil
	}
	d := w.newStreamData(a.n - n)
	d.Bytes = d.buf[:a.n-n]
	if !x.Mapped.GetMapped(d.Bytes, a.addr+uint64(n), opened) {
		w.freeStreamData(d)
		return n, nil
	}
	s.unread.push(d)
	w.streams.ready.add(s)
	return a.n, d
}
