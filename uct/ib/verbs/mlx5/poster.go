package mlx5

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// postAlone is post for a QP that may be in a thread domain, in builds that notice
// when goroutines meet there.
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
