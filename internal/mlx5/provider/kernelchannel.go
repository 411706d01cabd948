package provider

import (
	"slices"
	"sync"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// kernelChannel delivers the completion events that the kernel queues in a descriptor.
type kernelChannel struct {
	events prm.EventChannel

	mu  sync.Mutex
	cqs []*compQueue
}

func newKernelChannel(hw prm.EventHardware) (verbs.CompChannelProvider, error) {
	events, err := hw.NewChannel()
	if err != nil {
		return nil, opError("create completion channel", err)
	}
	return &kernelChannel{events: events}, nil
}

// FD implements verbs.CompChannelProvider.
func (ch *kernelChannel) FD() int { return ch.events.FD() }

// Pending implements verbs.CompChannelProvider. It loads two words of each CQ of the channel: if the queue
// is armed and has a completion, the device raises an event or has raised it. A queue that was never armed
// counts as armed. For solicited completions Pending calls the kernel. No CQ is closed while the lock is held.
func (ch *kernelChannel) Pending() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, c := range ch.cqs {
		sn, solicitedOnly, _ := prm.SplitArmWord(c.dbrec.Arm())
		next, _, _ := prm.SplitArmWord(prm.ArmWord(c.armSN.Load(), false, 0))
		switch {
		case sn != next: // the event of the last arm was taken
		case solicitedOnly:
			return ch.events.Readable()
		case c.hasCompletion():
			return true
		}
	}
	return false
}

// hasCompletion reports whether software owns the entry at the consumer index. The doorbell record
// contains the index, also if another package polls the queue.
func (c *compQueue) hasCompletion() bool {
	ci := c.dbrec.CI()
	return c.cqes.Slot(ci).Tail().Owned(c.cqes.Owner(ci))
}

// TryGet implements verbs.CompChannelProvider. Events of CQs that are gone are dropped.
func (ch *kernelChannel) TryGet() *verbs.CQ {
	for {
		cqn, ok := ch.events.TryRead()
		if !ok {
			return nil
		}
		if v := ch.eventCQ(cqn); v != nil {
			return v
		}
	}
}

// eventCQ returns the CQ of an event and disarms it; nil if the CQ does not exist any more.
func (ch *kernelChannel) eventCQ(cqn uint32) *verbs.CQ {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, c := range ch.cqs {
		if c.cqn == cqn {
			c.armSN.Add(1)
			return c.v
		}
	}
	return nil
}

func (ch *kernelChannel) describe(_ *compQueue, p *prm.CQParams) { p.Channel = ch.events }

func (ch *kernelChannel) watch(c *compQueue) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.cqs = append(ch.cqs, c)
}

// forget implements channel. The kernel drops the events of a CQ with the CQ.
func (ch *kernelChannel) forget(c *compQueue) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.cqs = slices.DeleteFunc(ch.cqs, func(q *compQueue) bool { return q == c })
}

// Close implements verbs.CompChannelProvider.
func (ch *kernelChannel) Close() error {
	if err := ch.events.Close(); err != nil {
		return opError("close completion channel", err)
	}
	return nil
}
