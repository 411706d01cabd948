package mlx5

import (
	"fmt"
	"sync/atomic"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// compQueue is the consumer of a CQ.
type compQueue struct {
	view      CQView
	ci        uint32
	lastIndex uint32 // user index of last
	last      owner
	watch     ucs.Watch // on the entry at ci; for a single-threaded poller
	attention *uint32
	drive     Pollable // nil on hardware
	users     *ownerTable
	dbrec     dbrecSlot
	locked    bool
	hardware  bool
	raw       bool  // somebody else polls: see RawCQOf
	guard     Guard // of the polls, if single-threaded
	mu        spinLock
	overrun   atomic.Bool

	prov    *Provider
	v       *verbs.CQ
	cqn     uint32
	uar     UAR
	mem     queueMemory
	channel *compChannel
	armSN   atomic.Uint32 // events taken
}

// calm is the attention word of a device that needs no driving.
var calm uint32

// CreateCQ implements verbs.Provider.
func (p *Provider) CreateCQ(v *verbs.CQ, attr verbs.CQInitAttr) (_ verbs.CQProvider, err error) {
	if attr.Depth < 1 || attr.Depth > maxCQLen {
		return nil, opError("create CQ", fmt.Errorf("depth %d, want 1 to %d: %w", attr.Depth, maxCQLen, ucs.ErrInvalidParam))
	}
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			_ = undo.Run()
		}
	}()
	count := pow2(attr.Depth)
	c := &compQueue{prov: p, v: v, users: &p.users, uar: p.uuars.cqPage(), attention: &calm,
		locked: !attr.SingleThreaded && !p.cfg.SingleThreaded}
	c.hardware = c.uar.Doorbell == nil
	if d, ok := p.hw.(Pollable); ok {
		c.drive, c.attention = d, d.Attention()
	}
	if attr.Channel != nil {
		c.channel, _ = attr.Channel.Provider().(*compChannel)
	}
	if c.mem, err = allocQueue(count * CQELen); err != nil {
		return nil, err
	}
	undo.Add(c.mem.free)
	if c.dbrec, err = p.dbrecs.take(); err != nil {
		return nil, err
	}
	undo.Add(func() error { p.dbrecs.give(c.dbrec); return nil })
	if c.view, err = NewCQView(c.mem.base, uint32(count)); err != nil {
		return nil, opError("create CQ", err)
	}
	for i := range c.view.Count() {
		c.view.Slot(i).Init()
	}
	c.watch = ucs.Watch{Word: c.view.Slot(0).word(), Quiet: neverTail, Attention: c.attention}
	if err = c.create(); err != nil {
		return nil, opError("create CQ", err)
	}
	c.followQueue()
	p.events.addCQ(c)
	p.count(func(r *verbs.Resources) { r.CQs++; r.Bytes.CQs += c.footprint() })
	return c, nil
}

func (c *compQueue) create() (err error) {
	params := CQParams{Buf: c.mem.base, Count: c.view.Count(), DBRec: c.dbrec.p, UAR: c.uar, Locked: c.locked}
	if c.channel != nil {
		params.Sink = c
	}
	c.cqn, err = c.prov.hw.CreateCQ(params)
	return err
}

// followQueue has polls of this queue drive the queue rather than the device, where
// the device wants that.
func (c *compQueue) followQueue() {
	d, ok := c.prov.hw.(QueuePollable)
	if !ok {
		return
	}
	if q := d.Poller(c.cqn); q != nil {
		c.drive, c.attention = q, q.Attention()
		c.watch.Attention = c.attention
	}
}

// Depth implements verbs.CQProvider.
func (c *compQueue) Depth() int { return int(c.view.Count()) }

// CompletionEvent implements CQSink.
func (c *compQueue) CompletionEvent() { c.channel.push(c) }

// Poll implements verbs.CQProvider. Nothing there is the frequent case, and takes
// the short way.
func (c *compQueue) Poll(wc []verbs.WC) int {
	if !c.locked {
		if race.Enabled {
			return c.pollAlone(wc)
		}
		if c.watch.Idle() {
			return 0
		}
		return c.poll(wc)
	}
	if atomic.LoadUint32(c.attention) != 0 {
		c.drive.Drive()
	}
	c.mu.lock()
	n := c.take(wc)
	c.mu.unlock()
	return n
}

// poll is Poll for a single-threaded queue in which there may be something.
func (c *compQueue) poll(wc []verbs.WC) int {
	if atomic.LoadUint32(c.attention) != 0 {
		c.drive.Drive()
	}
	return c.take(wc)
}

// take moves completions to wc, and sets the watch on the entry that is next.
func (c *compQueue) take(wc []verbs.WC) int {
	n, ci := 0, c.ci
	for n < len(wc) {
		s := c.view.Slot(ci)
		t := s.Tail()
		if !t.Owned(c.view.Owner(ci)) {
			return c.drained(n, ci, s, t)
		}
		if c.hardware {
			mmio.FromDevice()
		}
		ci++
		if c.parse(s, t, &wc[n]) {
			n++
		}
	}
	c.consumed(ci)
	c.lookAgain()
	return n
}

// drained ends a poll that found the entry at ci not written yet.
func (c *compQueue) drained(n int, ci uint32, s *CQESlot, t Tail) int {
	c.consumed(ci)
	c.watch.Word, c.watch.Quiet = s.word(), t.raw()
	if c.overrun.Load() {
		c.lookAgain() // and be told again
		if n == 0 {
			return -1
		}
	}
	return n
}

// consumed gives the entries up to ci back to the device.
func (c *compQueue) consumed(ci uint32) {
	if ci != c.ci {
		c.ci = ci
		c.dbrec.StoreCI(ci)
	}
}

// neverTail is a last word that no CQE ever has: opcode 15 with the owner bit set.
const neverTail = 1<<32 - 1

// lookAgain has the next poll look at the entries.
func (c *compQueue) lookAgain() { c.watch.Quiet = neverTail }

// Watch implements verbs.CQProvider.
func (c *compQueue) Watch() *ucs.Watch {
	if c.locked {
		return nil
	}
	return &c.watch
}

// wcOfSend is the completion of a send opcode; length says that ByteLen is set.
var wcOfSend = [256]struct {
	op    verbs.WCOpcode
	flags verbs.WCFlags
	mask  uint32 // of the CQE's byte count
	fixed uint32
}{
	OpRDMAWrite:    {op: verbs.WCRDMAWrite},
	OpRDMAWriteImm: {op: verbs.WCRDMAWrite},
	OpSend:         {op: verbs.WCSend},
	OpSendImm:      {op: verbs.WCSend},
	OpRDMARead:     {op: verbs.WCRDMARead, mask: 1<<32 - 1},
	OpAtomicCS:     {op: verbs.WCCompSwap, fixed: AtomicOperandLen},
	OpAtomicFA:     {op: verbs.WCFetchAdd, fixed: AtomicOperandLen},
}

// parse turns a CQE into a work completion. It reports false for one that stands
// for no work request of ours: its owner is gone, or the device wrote nonsense.
func (c *compQueue) parse(s *CQESlot, t Tail, wc *verbs.WC) bool {
	if i := s.UserIndex(); i != c.lastIndex {
		c.last, c.lastIndex = c.users.get(i), i
	}
	if t.Opcode() != CQEReq {
		return c.parseOther(s, t, wc)
	}
	qp := c.last.qp
	if qp == nil {
		return false
	}
	slot := qp.sq.slot(uint32(t.WQECounter()))
	k := &wcOfSend[s.SendOp()]
	*wc = verbs.WC{ID: slot.id, Opcode: k.op, QPN: qp.qpn, ByteLen: s.ByteCount()&k.mask | k.fixed}
	qp.sq.retire(slot)
	return true
}

// parseOther is parse for receives and errors.
func (c *compQueue) parseOther(s *CQESlot, t Tail, wc *verbs.WC) bool {
	switch t.Opcode() {
	case CQERespSend, CQERespSendImm, CQERespWrImm:
		return c.parseRecv(s, t, wc)
	case CQEReqErr:
		qp := c.last.qp
		if qp == nil {
			return false
		}
		slot := qp.sq.slot(uint32(t.WQECounter()))
		*wc = verbs.WC{ID: slot.id, QPN: qp.qpn, Opcode: wcOfSend[s.SendOp()].op}
		qp.sq.retire(slot)
	case CQERespErr:
		*wc = verbs.WC{Opcode: verbs.WCRecv}
		if !c.takeRecv(s, t, wc) {
			return false
		}
	default:
		return false
	}
	wc.Status, wc.VendorErr = s.Syndrome().Status(), s.VendorErr()
	return true
}

// parseRecv is parse for an arrival.
func (c *compQueue) parseRecv(s *CQESlot, t Tail, wc *verbs.WC) bool {
	*wc = verbs.WC{Opcode: verbs.WCRecv, ByteLen: s.ByteCount()}
	if !c.takeRecv(s, t, wc) {
		return false
	}
	if t.Opcode() == CQERespWrImm {
		wc.Opcode = verbs.WCRecvRDMAWithImm
	}
	if t.Opcode() != CQERespSend {
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

// takeRecv retires the receive that the CQE is of.
func (c *compQueue) takeRecv(s *CQESlot, t Tail, wc *verbs.WC) (ok bool) {
	if srq := c.last.srq; srq != nil {
		wc.ID, wc.QPN = srq.take(t.WQECounter()), s.QPN()
		return true
	}
	qp := c.last.qp
	if qp == nil {
		return false
	}
	wc.QPN = qp.qpn
	wc.ID, ok = qp.rq.take()
	return ok
}

// clean removes the CQEs of a QP that is destroyed or reset, so that nobody sees
// them after its numbers have been given to another. Receives that it took from
// an SRQ are posted there again: nobody else knows which they were. Of a raw queue
// the poller takes care.
func (c *compQueue) clean(qp *queuePair) {
	if c.raw {
		return
	}
	if c.locked {
		c.mu.lock()
	}
	end := c.ci
	for c.view.Slot(end).Tail().Owned(c.view.Owner(end)) && end-c.ci < c.view.Count() {
		end++
	}
	freed := uint32(0)
	for i := end; i != c.ci; {
		i--
		s := c.view.Slot(i)
		if c.isOf(s, qp) {
			freed++
		} else if freed > 0 {
			s.moveTo(c.view.Slot(i+freed), c.view.Owner(i+freed))
		}
	}
	if freed > 0 {
		c.ci += freed
		c.dbrec.StoreCI(c.ci)
	}
	c.lastIndex, c.last = 0, owner{}
	c.lookAgain()
	if c.locked {
		c.mu.unlock()
	}
}

// isOf reports whether the CQE is of the QP; it posts an SRQ entry again.
func (c *compQueue) isOf(s *CQESlot, qp *queuePair) bool {
	i := s.UserIndex()
	if i == qp.uidx {
		return true
	}
	if qp.srq == nil || i != qp.srq.uidx || s.QPN() != qp.qpn {
		return false
	}
	qp.srq.repost(s.Tail().WQECounter())
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
	w := ArmWord(c.armSN.Load(), solicitedOnly, c.ci)
	c.dbrec.StoreArm(w)
	if c.locked {
		c.mu.unlock()
	}
	c.ringArm(w)
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
	p.dbrecs.give(c.dbrec)
	p.count(func(r *verbs.Resources) { r.CQs--; r.Bytes.CQs -= c.footprint() })
	return c.mem.free()
}
