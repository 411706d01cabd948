package ucp

import (
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// A large stream send from memory that the peer has mapped uses rendezvous. The peer reads the bytes
// immediately, into posted receives or into a buffer of its own, and replies with the number of bytes that
// it has read. So the data is copied once, and does not wait for a receive. If the peer cannot read
// some of the bytes, for example because the memory is not mapped there, the sender sends them in
// pieces.

// minStreamAsked is the minimum length of a send by rendezvous, in bytes. The next send waits for the
// reply to the RTS, which takes as long as two messages; pieces follow each other without a
// wait.
const minStreamAsked = 32 << 10

// maxEagerSends is the Log2 of the maximum number of sends in pieces after an RTS whose bytes the peer has not read
// completely.
const maxEagerSends = 10

// usesRendezvous reports whether a send that starts now must use rendezvous.
func (s *stream) usesRendezvous(r *Request) bool {
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
		e.requestLane(wireup.RMA) // for the next send
		return false
	}
	if x.Mapped == nil { // the peer cannot map this side's memory either
		return false
	}
	if s.eagerSends > 0 {
		s.eagerSends--
		return false
	}
	return true
}

// streamRTS sends an RTS for as many bytes as there is credit for, at most half of the window, and waits for the
// peer's reply.
func (r *Request) streamRTS() error {
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

// handleStreamTaken handles the reply to an RTS: it continues the send after the bytes
// that the peer has read.
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
		s.refused = min(s.refused+1, maxEagerSends)
		s.eagerSends = 1 << s.refused
		r.stage = &r.msg.ch.pieces
	}
	if st := r.stopped(); st != ucs.StatusOK {
		r.fail(st)
		r.posted()
		return true
	}
	if e.lane(wireup.AM) == nil { // messages move to another lane; resume continues
		s.starved = true
		return true
	}
	r.proceed()
	return true
}

// handleStreamRTS handles the RTS of a piece of a stream.
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
		e.markUsed()
		e.msgs.streaming().takeAnnounced(h.Word, &p)
	} else if e = w.connected(h.EP); e != nil && e.state != epOpen {
		e.control(takenControl, p.ID, p.Length) // they will not be read: the sender must not wait
	}
	return false
}

// takeAnnounced is take for the bytes of an RTS: it reads as many as it can from the sender's memory,
// releases the charge of the others, and replies.
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
		m.returnCharge(charge(n))
	}
	e.control(takenControl, a.id, uint64(n))
}

// fetch reads the bytes of an RTS into the posted receives, and the rest into a buffer of unread
// data; kept is that buffer, or nil. n is the number of bytes that it has read.
func (s *stream) fetch(a *announced, key *RKey) (n int, kept *StreamData) {
	e, w := s.m.e, s.m.e.w
	x := e.lane(wireup.RMA)
	if x == nil {
		e.requestLane(wireup.RMA) // for the next RTS
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
		r.countReceived(len(to))
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
