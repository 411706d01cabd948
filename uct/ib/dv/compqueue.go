package dv

import (
	"sync/atomic"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// compQueue is the consumer of a completion queue.
type compQueue struct {
	prm.CompRing
	guard   *provider.Guard // detects concurrent polls
	cqn     uint32
	uar     prm.UAR
	events  *atomic.Uint32
	overrun *atomic.Bool
}

// open uses the memory of a CQ.
func (c *compQueue) open(cq *verbs.CQ) error {
	raw, err := provider.RawCQOf(cq)
	if err != nil {
		return err
	}
	view, err := prm.NewCQView(raw.CQEs.Buf, raw.CQEs.Count)
	if err != nil {
		return err
	}
	c.CompRing = prm.NewCompRing(view, raw.DBRec, raw.UAR.Doorbell == nil, raw.Device)
	c.cqn, c.events, c.overrun, c.guard = raw.CQN, raw.Events, raw.Overrun, raw.Guard
	c.uar = prm.UAR{Page: raw.UAR.Page, Doorbell: raw.UAR.Doorbell}
	return nil
}

// pollEmpty polls a queue without completions.
func (c *compQueue) pollEmpty() {
	if c.Idle() {
		return
	}
	c.Drive()
	if s, t := c.Peek(); !c.Owned(t) {
		c.Wait(s, t)
	}
}

// Arm requests an event at the next completion.
func (c *compQueue) Arm(solicitedOnly bool) error {
	prm.RingArm(c.uar, c.cqn, c.ArmRecord(c.events.Load(), solicitedOnly))
	return nil
}

// invalidQPN is a QPN that no QP has: it means multicast (IBTA volume 1, 9.6).
const invalidQPN = 1<<24 - 1

// invalidateQPN sets the QPN of unpolled completions of a destroyed QP to invalidQPN, because
// another QP may get its number. When such a completion is polled, its receive returns to the
// shared receive queue.
func (c *compQueue) invalidateQPN(qpn uint32) {
	for i := range c.Waiting() {
		if s := c.Slot(c.CI() + i); s.QPN() == qpn {
			s.SetQPN(invalidQPN)
		}
	}
}

// removeIndex removes unpolled completions with a user index, because another queue may get the
// index.
func (c *compQueue) removeIndex(index uint32) {
	c.Remove(func(s *prm.CQESlot) bool { return s.UserIndex() == index })
}

// setError sets the error of a completion.
func setError(s *prm.CQESlot, wc *verbs.WC) {
	wc.Status, wc.VendorErr = s.Syndrome().Status(), s.VendorErr()
}
