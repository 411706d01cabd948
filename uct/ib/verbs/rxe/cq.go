package rxe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// compQueue is a CQ. It is the consumer of the ring.
type compQueue struct {
	prov   *provider
	v      *verbs.CQ
	ring   *ring
	ci     uint32 // masked
	last   *queuePair
	locked bool
	mu     sync.Mutex
	watch  ucs.Watch
	failed atomic.Bool
	alarm  uint32 // attention word of watch: not 0 after the queue has failed

	channel *compChannel // nil without completion channel
	armed   atomic.Int32 // disarmed, armedAny or armedSolicited
	arm     [2]*uverbs.Command
	handle  uint32
	id      uint64
}

// CreateCQ implements verbs.Provider.
func (p *provider) CreateCQ(v *verbs.CQ, attr verbs.CQInitAttr) (_ verbs.CQProvider, err error) {
	c := &compQueue{prov: p, v: v, locked: !attr.SingleThreaded, id: p.objects.reserve()}
	depth, vector := uint32(attr.Depth), uint32(attr.Vector)
	var got uint32
	var queue mmapInfo
	attrs := []uverbs.Attr{
		uverbs.Object(uverbs.AttrHandle, 0),
		uverbs.In(uverbs.CQAttrDepth, &depth),
		uverbs.In(uverbs.CQAttrUser, &c.id),
		uverbs.In(uverbs.CQAttrVector, &vector),
		uverbs.Out(uverbs.CQAttrReplyDepth, &got),
		uverbs.Out(uverbs.AttrDriverOut, &queue),
	}
	if attr.Channel != nil {
		c.channel = attr.Channel.Provider().(*compChannel)
		attrs = append(attrs, uverbs.Object(uverbs.CQAttrChannel, uint32(c.channel.kernel.FD())))
	}
	if err = p.ctx.Call(uverbs.MethodCreateCQ, attrs...); err != nil {
		return nil, err
	}
	c.handle = uint32(attrs[0].Value)
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			_ = undo.Run()
		}
	}()
	undo.Add(c.destroy)
	if c.ring, err = mapRing(p.ctx, queue, wcLen); err != nil {
		return nil, err
	}
	undo.Add(c.ring.unmap)
	if c.ring.depth() < attr.Depth {
		return nil, opError("create CQ", fmt.Errorf("%w: %d entries, want %d", ucs.ErrInternal, c.ring.depth(), attr.Depth))
	}
	if err = c.prepareArm(&undo); err != nil {
		return nil, err
	}
	c.ci = c.ring.consumer()
	c.watch = ucs.Watch{Word: &c.ring.header.producer, Quiet: c.ci, Attention: &c.alarm}
	p.objects.add(c.id, c)
	if c.channel != nil {
		c.channel.add(c)
	}
	return c, nil
}

// prepareArm prepares the two commands of Arm: for all completions and for solicited ones.
func (c *compQueue) prepareArm(undo *cleanup.Stack) (err error) {
	if c.channel == nil {
		return nil
	}
	for i := range c.arm {
		body := uverbs.ReqNotifyCQ{CQ: c.handle, SolicitedOnly: uint32(i)}
		if c.arm[i], err = c.prov.ctx.NewCommand(uverbs.CmdReqNotifyCQ, uverbs.BytesOf(&body), 0); err != nil {
			return err
		}
		undo.Add(func() error { c.arm[i].Free(); return nil })
	}
	return nil
}

// Depth implements verbs.CQProvider.
func (c *compQueue) Depth() int { return c.ring.depth() }

// fail records that the kernel has lost a completion. Several goroutines may call it.
func (c *compQueue) fail() {
	c.failed.Store(true)
	atomic.StoreUint32(&c.alarm, 1)
}

// Watch implements verbs.CQProvider.
func (c *compQueue) Watch() *ucs.Watch {
	if c.locked {
		return nil
	}
	return &c.watch
}

// Poll implements verbs.CQProvider.
func (c *compQueue) Poll(wc []verbs.WC) int {
	if !c.locked {
		return c.pollEntries(wc)
	}
	c.mu.Lock()
	n := c.pollEntries(wc)
	c.mu.Unlock()
	return n
}

// pollEntries moves up to len(wc) completions to wc and returns their number, or -1 if the queue has failed and is empty.
func (c *compQueue) pollEntries(wc []verbs.WC) int {
	n, ci, pi := 0, c.ci, c.ring.producer()
	for n < len(wc) && ci != pi {
		if c.parse(c.ring.wcSlot(ci), &wc[n]) {
			n++
		}
		ci = (ci + 1) & c.ring.mask
	}
	if ci != c.ci {
		c.consumed(ci)
	}
	if n == 0 && c.failed.Load() {
		return -1
	}
	return n
}

// consumed returns the entries before ci to the kernel.
func (c *compQueue) consumed(ci uint32) {
	c.ci, c.watch.Quiet = ci, ci
	c.ring.release(ci)
}

// parse converts an entry to a work completion. It returns false if the QP was destroyed or the entry is of a receive
// that the SRQ has not posted.
func (c *compQueue) parse(s *uverbs.WC, wc *verbs.WC) bool {
	qp := c.last
	if qp == nil || qp.qpn != s.QPN {
		if qp = c.prov.qps.get(s.QPN); qp == nil {
			return false
		}
		c.last = qp
	}
	*wc = verbs.WC{ID: s.WRID, QPN: s.QPN, Status: verbs.WCStatus(min(s.Status, 255))}
	if qp.srq != nil {
		if id, ok := qp.srq.retire(s.WRID); ok {
			wc.ID = id
		} else if s.Opcode >= uint32(verbs.WCRecv) {
			return false
		}
	}
	if s.Status != 0 {
		wc.VendorErr = uint8(s.VendorErr)
		qp.failed.Store(true)
		return true
	}
	wc.Opcode = verbs.WCOpcode(s.Opcode)
	wc.Flags = verbs.WCFlags(s.Flags) & (verbs.WCGRH | verbs.WCWithImm)
	switch wc.Opcode {
	case verbs.WCRDMARead:
		wc.ByteLen = s.ByteLen
	case verbs.WCCompSwap, verbs.WCFetchAdd:
		wc.ByteLen = atomicLen
	case verbs.WCRecv, verbs.WCRecvRDMAWithImm:
		wc.ByteLen, wc.SrcQP = s.ByteLen, s.SrcQP
		if wc.Flags&verbs.WCWithImm != 0 {
			wc.Imm = fromBE32(s.Imm)
		}
	}
	return true
}

// fromBE32 converts between big-endian and host byte order.
func fromBE32(v uint32) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return binary.BigEndian.Uint32(b[:])
}

// clean removes the entries of a destroyed or reset QP. It posts completed receives of an SRQ there again: the completion
// is the only record that the QP consumed the receive.
func (c *compQueue) clean(qp *queuePair) {
	if c.locked {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	c.last = nil
	to := c.ring.producer()
	for from := to; from != c.ci; {
		from = (from - 1) & c.ring.mask
		s := c.ring.wcSlot(from)
		if s.QPN == qp.qpn {
			if qp.srq != nil {
				qp.srq.repost(s.WRID)
			}
			continue
		}
		to = (to - 1) & c.ring.mask
		*c.ring.wcSlot(to) = *s
	}
	if to != c.ci {
		c.consumed(to)
	}
}

// Values of compQueue.armed.
const (
	disarmed = iota
	armedAny
	armedSolicited
)

// Arm implements verbs.CQProvider. A completion in the ring raises the event at once, even if solicitedOnly is set: the
// entry does not show whether it is solicited.
func (c *compQueue) Arm(solicitedOnly bool) error {
	if c.channel == nil {
		return opError("arm CQ", fmt.Errorf("the CQ has no completion channel: %w", ucs.ErrInvalidState))
	}
	if c.isEmpty() {
		c.armed.Store(armedAny + int32(flag(solicitedOnly)))
		if err := c.arm[flag(solicitedOnly)].Run(true); err != nil {
			return err
		}
	}
	if !c.isEmpty() || c.failed.Load() {
		c.channel.raise(c)
	}
	return nil
}

func (c *compQueue) isEmpty() bool { return c.ring.producer() == c.ring.consumer() }

func (c *compQueue) destroy() error {
	var reply uverbs.DestroyCQReply
	return c.prov.ctx.Call(uverbs.MethodDestroyCQ, uverbs.Object(uverbs.AttrHandle, c.handle), uverbs.Out(uverbs.DestroyAttrReply, &reply))
}

// Close implements verbs.CQProvider.
func (c *compQueue) Close() error {
	if err := c.destroy(); err != nil {
		return err
	}
	c.prov.objects.remove(c.id)
	if c.channel != nil {
		c.channel.remove(c)
	}
	for _, cmd := range c.arm {
		cmd.Free()
	}
	return errors.Join(c.ring.unmap())
}
