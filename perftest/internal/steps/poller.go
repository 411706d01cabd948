package steps

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/cpu"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// Credit counts what a thread has outstanding. Any goroutine.
type Credit struct {
	n atomic.Int64
	_ cpu.CacheLinePad
}

// Post counts one more work request.
func (c *Credit) Post() { c.n.Add(1) }

// Outstanding is how many have not completed.
func (c *Credit) Outstanding() int64 { return c.n.Load() }

// Poller takes completions from a CQ that threads may share. Work requests, all of
// them signaled, have the number of their thread as ID.
type Poller struct {
	CQ      *verbs.CQ
	Credits []*Credit // by thread
	wc      [pollBatch]verbs.WC
}

// pollBatch is how many completions one poll takes.
const pollBatch = 16

var errOverrun = errors.New("completion queue overrun")

// Poll polls once and credits the threads whose work requests completed. It returns
// how many did.
func (p *Poller) Poll() (int, error) {
	n := p.CQ.Poll(p.wc[:])
	if n < 0 {
		return 0, errOverrun
	}
	for i := range p.wc[:n] {
		if p.wc[i].Status != verbs.WCSuccess {
			return 0, failed(&p.wc[i])
		}
		p.Credits[p.wc[i].ID].n.Add(-1)
	}
	return n, nil
}

//go:noinline
func failed(wc *verbs.WC) error {
	return fmt.Errorf("work request of thread %d, qp %#x: %w", wc.ID, wc.QPN, wc.Status.Err())
}
