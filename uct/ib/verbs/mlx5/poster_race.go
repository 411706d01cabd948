//go:build race

package mlx5

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// poster notices two goroutines that post in a thread domain at the same time,
// whether to one QP or to two that share the domain's register. The order that its
// flag makes is hidden from the race detector, which goes on to report goroutines
// that take turns without synchronizing.
type poster struct{ busy atomic.Bool }

func (p *poster) enter() bool {
	runtime.RaceDisable()
	defer runtime.RaceEnable()
	return p.busy.CompareAndSwap(false, true)
}

func (p *poster) leave() {
	runtime.RaceDisable()
	defer runtime.RaceEnable()
	p.busy.Store(false)
}

// postAlone is post for a QP that may be in a thread domain.
func (q *queuePair) postAlone(wr []verbs.SendWR) (n int, err error) {
	if q.td == nil {
		return q.sq.post(wr)
	}
	if !q.td.poster.enter() {
		return 0, opError("post send", fmt.Errorf("qp %#x: another goroutine posts in its thread domain: %w", q.qpn, ucs.ErrBusy))
	}
	defer q.td.poster.leave()
	return q.sq.post(wr)
}
