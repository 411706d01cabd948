package provider

import (
	"fmt"
	"sync/atomic"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// compQueue is the consumer of a CQ.
type compQueue struct {
	cqes      prm.CompRing
	lastIndex uint32 // user index of last
	last      owner
	users     *ownerTable
	dbrec     dbrecSlot
	locked    bool
	raw       bool  // another package polls: see RawCQOf
	guard     Guard // of the polls, if single-threaded
	mu        spinLock
	overrun   atomic.Bool

	prov    *provider
	v       *verbs.CQ
	cqn     uint32
	uar     prm.UAR
	mem     queueMemory
	channel channel       // nil without one
	armSN   atomic.Uint32 // number of events that were read
}

// CreateCQ implements verbs.Provider.
func (p *provider) CreateCQ(v *verbs.CQ, attr verbs.CQInitAttr) (_ verbs.CQProvider, err error) {
	if attr.Depth < 1 || attr.Depth >= prm.MaxCQLen {
		return nil, opError("create CQ", fmt.Errorf("depth %d, want 1 to %d: %w", attr.Depth, prm.MaxCQLen-1, ucs.ErrInvalidParam))
	}
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			_ = undo.Run()
		}
	}()
	count := sizeCQ(attr.Depth)
	c := &compQueue{prov: p, v: v, users: &p.users, uar: p.uuars.cqPage(),
		locked: !attr.SingleThreaded && !p.cfg.SingleThreaded}
	if attr.Channel != nil {
		c.channel, _ = attr.Channel.Provider().(channel)
	}
	if c.mem, err = allocQueue(count * prm.CQELen); err != nil {
		return nil, err
	}
	undo.Add(c.mem.free)
	if c.dbrec, err = p.dbrecs.get(); err != nil {
		return nil, err
	}
	undo.Add(func() error { p.dbrecs.put(c.dbrec); return nil })
	view, err := prm.NewCQView(c.mem.base, uint32(count))
	if err != nil {
		return nil, opError("create CQ", err)
	}
	for i := range view.Count() {
		view.Slot(i).Init()
	}
	device, _ := p.hw.(prm.Pollable)
	c.cqes = prm.NewCompRing(view, c.dbrec.DBRec, c.uar.Doorbell == nil, device)
	if err = c.create(attr.Vector); err != nil {
		return nil, opError("create CQ", err)
	}
	c.followQueue()
	p.events.addCQ(c)
	p.count(func(r *verbs.Resources) { r.CQs++; r.Bytes.CQs += c.footprint() })
	return c, nil
}

func (c *compQueue) create(vector int) (err error) {
	params := prm.CQParams{Buf: c.mem.base, Count: c.cqes.Count(), DBRec: c.dbrec.DBRec, UAR: c.uar, Locked: c.locked, Vector: vector}
	if c.channel != nil {
		c.channel.describe(c, &params)
	}
	if c.cqn, err = c.prov.hw.CreateCQ(params); err != nil {
		return err
	}
	if c.channel != nil {
		c.channel.watch(c)
	}
	return nil
}

// followQueue makes polls of this queue drive the Poller of the queue instead of the device, if
// the hardware has one.
func (c *compQueue) followQueue() {
	d, ok := c.prov.hw.(prm.QueuePollable)
	if !ok {
		return
	}
	if q := d.Poller(c.cqn); q != nil {
		c.cqes.Follow(q)
	}
}

// Depth implements verbs.CQProvider. As in libmlx5, one entry is reserved.
func (c *compQueue) Depth() int { return int(c.cqes.Count()) - 1 }

// Poll implements verbs.CQProvider. The most frequent case, an empty queue, has a fast
// path.
func (c *compQueue) Poll(wc []verbs.WC) int {
	if !c.locked {
		if race.Enabled {
			return c.pollAlone(wc)
		}
		if c.cqes.Idle() {
			return 0
		}
		return c.poll(wc)
	}
	c.cqes.Drive()
	c.mu.lock()
	n := c.pollEntries(wc)
	c.mu.unlock()
	return n
}

// poll is Poll for a single-threaded queue that may have a completion.
func (c *compQueue) poll(wc []verbs.WC) int {
	c.cqes.Drive()
	return c.pollEntries(wc)
}

// pollEntries moves completions to wc, and sets the watch to the next entry.
func (c *compQueue) pollEntries(wc []verbs.WC) int {
	n, r := 0, &c.cqes
	from := r.CI()
	for n < len(wc) {
		s, t := r.Peek()
		if !r.Owned(t) {
			r.Wait(s, t)
			return c.drained(n, from)
		}
		r.Take()
		if c.parse(s, t, &wc[n]) {
			n++
		}
	}
	c.consumed(from)
	r.LookAgain()
	return n
}

// drained ends a poll that began at index from and has reached an entry that is not written yet.
func (c *compQueue) drained(n int, from uint32) int {
	c.consumed(from)
	if c.overrun.Load() {
		c.cqes.LookAgain() // the next poll checks again
		if n == 0 {
			return -1
		}
	}
	return n
}

// consumed returns the entries since index from to the device.
func (c *compQueue) consumed(from uint32) {
	if c.cqes.CI() != from {
		c.cqes.Give()
	}
}

// Watch implements verbs.CQProvider.
func (c *compQueue) Watch() *ucs.Watch {
	if c.locked {
		return nil
	}
	return c.cqes.Watch()
}

// wcOfSend is the completion of a send opcode.
var wcOfSend = [256]struct {
	op    verbs.WCOpcode
	flags verbs.WCFlags
	mask  uint32 // of the CQE's byte count
	fixed uint32
}{
	prm.OpRDMAWrite:    {op: verbs.WCRDMAWrite},
	prm.OpRDMAWriteImm: {op: verbs.WCRDMAWrite, flags: verbs.WCWithImm},
	prm.OpSend:         {op: verbs.WCSend},
	prm.OpSendImm:      {op: verbs.WCSend, flags: verbs.WCWithImm},
	prm.OpRDMARead:     {op: verbs.WCRDMARead, mask: 1<<32 - 1},
	prm.OpAtomicCS:     {op: verbs.WCCompSwap, fixed: prm.AtomicOperandLen},
	prm.OpAtomicFA:     {op: verbs.WCFetchAdd, fixed: prm.AtomicOperandLen},
}

// parse converts a CQE to a work completion. It returns false if the CQE belongs to no
// work request: its owner is destroyed, or the device has written invalid values.
func (c *compQueue) parse(s *prm.CQESlot, t prm.Tail, wc *verbs.WC) bool {
	if i := s.UserIndex(); i != c.lastIndex {
		c.last, c.lastIndex = c.users.get(i), i
	}
	if t.Opcode() != prm.CQEReq {
		return c.parseOther(s, t, wc)
	}
	qp := c.last.qp
	if qp == nil {
		return false
	}
	slot := qp.sq.slot(uint32(t.WQECounter()))
	k := &wcOfSend[s.SendOp()]
	*wc = verbs.WC{ID: slot.id, Opcode: k.op, QPN: qp.qpn, ByteLen: s.ByteCount()&k.mask | k.fixed}
	wc.Flags = k.flags
	qp.sq.retire(slot)
	return true
}

// parseOther is parse for receives and errors.
func (c *compQueue) parseOther(s *prm.CQESlot, t prm.Tail, wc *verbs.WC) bool {
	switch t.Opcode() {
	case prm.CQERespSend, prm.CQERespSendImm, prm.CQERespWrImm:
		return c.parseRecv(s, t, wc)
	case prm.CQEReqErr:
		qp := c.last.qp
		if qp == nil {
			return false
		}
		slot := qp.sq.slot(uint32(t.WQECounter()))
		*wc = verbs.WC{ID: slot.id, QPN: qp.qpn, Opcode: wcOfSend[s.SendOp()].op}
		qp.sq.retire(slot)
	case prm.CQERespErr:
		*wc = verbs.WC{Opcode: verbs.WCRecv}
		if !c.completeRecv(s, t, wc) {
			return false
		}
	default:
		return false
	}
	wc.Status, wc.VendorErr = s.Syndrome().Status(), s.VendorErr()
	return true
}

// parseRecv is parse for a receive.
func (c *compQueue) parseRecv(s *prm.CQESlot, t prm.Tail, wc *verbs.WC) bool {
	*wc = verbs.WC{Opcode: verbs.WCRecv, ByteLen: s.ByteCount()}
	if !c.completeRecv(s, t, wc) {
		return false
	}
	if t.Opcode() == prm.CQERespWrImm {
		wc.Opcode = verbs.WCRecvRDMAWithImm
	}
	if t.Opcode() != prm.CQERespSend {
		wc.Imm = s.Imm()
		wc.Flags = verbs.WCWithImm
	}
	grh, _, src := s.RemoteQP()
	wc.SrcQP = src
	if grh != 0 {
		wc.Flags |= verbs.WCGRH
	}
	return true
}

// completeRecv retires the receive of a CQE.
func (c *compQueue) completeRecv(s *prm.CQESlot, t prm.Tail, wc *verbs.WC) (ok bool) {
	if srq := c.last.srq; srq != nil {
		wc.ID, wc.QPN = srq.retire(t.WQECounter()), s.QPN()
		return true
	}
	qp := c.last.qp
	if qp == nil {
		return false
	}
	wc.QPN = qp.qpn
	if qp.srq != nil {
		wc.ID = qp.srq.retire(t.WQECounter())
		return true
	}
	wc.ID, ok = qp.rq.Take()
	return ok
}

// clean removes the CQEs of a QP that is destroyed or reset, because its numbers will
// be assigned to another one. It posts receives that the QP has consumed from
// an SRQ again, because only these CQEs identify them. For a raw queue
// the poller does this.
func (c *compQueue) clean(qp *queuePair) {
	c.remove(func(s *prm.CQESlot) bool { return c.isOf(s, qp) })
}

// cleanSRQ removes the CQEs of an XRC SRQ that is destroyed.
func (c *compQueue) cleanSRQ(q *sharedRecv) {
	c.remove(func(s *prm.CQESlot) bool { return s.UserIndex() == q.uidx })
}

func (c *compQueue) remove(gone func(*prm.CQESlot) bool) {
	if c.raw {
		return
	}
	if c.locked {
		c.mu.lock()
	}
	c.cqes.Remove(gone)
	c.lastIndex, c.last = 0, owner{}
	if c.locked {
		c.mu.unlock()
	}
}

// isOf reports whether the CQE belongs to the QP. If so, and the CQE is that of an SRQ entry, it posts the entry again.
func (c *compQueue) isOf(s *prm.CQESlot, qp *queuePair) bool {
	if s.UserIndex() != qp.uidx {
		return false
	}
	if t := s.Tail(); qp.srq != nil && t.OfReceive() {
		qp.srq.repost(t.WQECounter())
	}
	return true
}

// Arm implements verbs.CQProvider.
func (c *compQueue) Arm(solicitedOnly bool) error {
	if c.channel == nil {
		return opError("arm CQ", fmt.Errorf("it has no completion channel: %w", ucs.ErrInvalidState))
	}
	if c.locked {
		c.mu.lock()
	}
	w := c.cqes.ArmRecord(c.armSN.Load(), solicitedOnly)
	if c.locked {
		c.mu.unlock()
	}
	prm.RingArm(c.uar, c.cqn, w)
	return nil
}

// Close implements verbs.CQProvider.
func (c *compQueue) Close() error {
	p := c.prov
	if err := p.hw.DestroyCQ(c.cqn); err != nil {
		return opError("destroy CQ", err)
	}
	p.events.removeCQ(c)
	if c.channel != nil {
		c.channel.forget(c)
	}
	p.dbrecs.put(c.dbrec)
	p.count(func(r *verbs.Resources) { r.CQs--; r.Bytes.CQs -= c.footprint() })
	return c.mem.free()
}
