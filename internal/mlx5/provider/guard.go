package provider

import (
	"fmt"

	"github.com/gucx/gucx/ucs/log"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

var logger = log.For("mlx5")

// postAlone is post for a QP that may be in a thread domain. In builds with -race it detects concurrent
// posts there.
func (q *queuePair) postAlone(wr []verbs.SendWR) (n int, err error) {
	if q.td == nil {
		return q.sq.post(wr)
	}
	if !q.td.guard.Enter() {
		return 0, opError("post send", fmt.Errorf("qp %#x: %w", q.qpn, mlx5.ErrConcurrentPost))
	}
	defer q.td.guard.Leave()
	return q.sq.post(wr)
}

// pollAlone is Poll for a single-threaded queue. In builds with -race it detects concurrent polls.
func (c *compQueue) pollAlone(wc []verbs.WC) int {
	if !c.guard.EnterPoll(c.cqn) {
		return 0
	}
	defer c.guard.Leave()
	if c.cqes.Idle() {
		return 0
	}
	return c.poll(wc)
}

// EnterPoll is Enter for a poll of a completion queue. It logs concurrent polls,
// because a poll returns no error.
func (g *Guard) EnterPoll(cqn uint32) bool {
	if g.Enter() {
		return true
	}
	logger.Error("another goroutine polls a single-threaded completion queue: nothing is taken", "cqn", log.Hex(cqn))
	return false
}
