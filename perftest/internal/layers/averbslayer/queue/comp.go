package queue

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Comp is a completion queue.
type Comp struct {
	prm.CompRing
	overrun *atomic.Bool
}

// errOverrun is the error of polls after the device has reported that the completion queue has
// overrun.
var errOverrun = errors.New("completion queue overrun")

// maxPoll is the maximum number of completions of one poll.
const maxPoll = 16

// Open initializes c for the queue of cq, which must never have been polled. It returns
// ErrUnsupported if the queue is not that of mlx5.
func (c *Comp) Open(cq *verbs.CQ) error {
	raw, err := provider.RawCQOf(cq)
	if err != nil {
		return err
	}
	view, err := prm.NewCQView(raw.CQEs.Buf, raw.CQEs.Count)
	if err != nil {
		return err
	}
	c.CompRing = prm.NewCompRing(view, raw.DBRec, raw.UAR.Doorbell == nil, raw.Device)
	c.overrun = raw.Overrun
	return nil
}

// Poll polls up to 16 completions of q, which must be the only send queue of c, and sets q.Done. It
// returns their number, and the error of the first failed work request.
func (c *Comp) Poll(q *Send) (n int, err error) {
	if c.Idle() {
		return 0, nil
	}
	c.Drive()
	for n < maxPoll {
		s, t := c.Peek()
		if !c.Sent(t) {
			if !c.Owned(t) {
				c.Wait(s, t)
				return n, c.polled(n)
			}
			c.Take()
			return n, c.failed(q, s, t)
		}
		c.Take()
		n++
		q.Done = *q.number(uint32(t.WQECounter()))
	}
	c.LookAgain()
	return n, c.polled(n)
}

// polled finishes a poll of n completions: it updates the doorbell record.
func (c *Comp) polled(n int) error {
	if n != 0 {
		c.Give()
		return nil
	}
	if c.overrun.Load() {
		return errOverrun
	}
	return nil
}

// failed returns the error of a completion that is not a successful send.
//
//go:noinline
func (c *Comp) failed(q *Send, s *prm.CQESlot, t prm.Tail) error {
	c.LookAgain()
	c.Give()
	if t.Opcode() == prm.CQEReqErr {
		return fmt.Errorf("work request %d of qp %#x: %w", *q.number(uint32(t.WQECounter())), s.QPN(), s.Syndrome().Status().Err())
	}
	return fmt.Errorf("completion with opcode %d of qp %#x", t.Opcode(), s.QPN())
}
