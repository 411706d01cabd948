package dv

import (
	"sync/atomic"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
)

// compQueue is the consumer of a completion queue.
type compQueue struct {
	prm.CompRing
	guard   *mlx5.Guard // of the polls
	cqn     uint32
	uar     prm.UAR
	events  *atomic.Uint32
	overrun *atomic.Bool
}

// open takes over the memory of a CQ.
func (c *compQueue) open(cq *verbs.CQ) error {
	raw, err := mlx5.RawCQOf(cq)
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

// pollEmpty polls a queue that stays empty.
func (c *compQueue) pollEmpty() {
	if c.Idle() {
		return
	}
	c.Drive()
	if s, t := c.Peek(); !c.Owned(t) {
		c.Wait(s, t)
	}
}

// Arm asks for an event at the next completion.
func (c *compQueue) Arm(solicitedOnly bool) error {
	prm.RingArm(c.uar, c.cqn, c.ArmRecord(c.events.Load(), solicitedOnly))
	return nil
}

// invalidQPN is a QPN that no QP has: that of multicast (IBTA volume 1, 9.6).
const invalidQPN = 1<<24 - 1

// disown makes the completions that wait for a QP those of invalidQPN: it is gone, and
// another one may get its number. What they took from the shared receive queue is
// given back when they are read.
func (c *compQueue) invalidateQPN(qpn uint32) {
	for i := range c.Waiting() {
		if s := c.Slot(c.CI() + i); s.QPN() == qpn {
			s.SetQPN(invalidQPN)
		}
	}
}

// drop removes the completions that wait for what had a user index: it may be given to
// another.
func (c *compQueue) removeIndex(index uint32) {
	c.Remove(func(s *prm.CQESlot) bool { return s.UserIndex() == index })
}

// failure fills in what went wrong.
func setError(s *prm.CQESlot, wc *verbs.WC) {
	wc.Status, wc.VendorErr = s.Syndrome().Status(), s.VendorErr()
}
