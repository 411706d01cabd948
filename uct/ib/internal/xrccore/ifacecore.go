package xrccore

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
)

// ifaceCore is the iface as its queues and its node see it: the core, with posts to other queues, and work for the
// next Progress. The owner of the iface calls the methods.
type ifaceCore struct {
	*rccore.Iface
	poster Poster
	name   string
	cfg    Config

	round     uint64  // calls of Progress
	allPolled uint64  // rounds in which a full completion queue has been polled
	busy      []*task // due
	working   []*task // due before, while they run
}

// task is what an EP does in the next Progress, if it is due. run returns how much that was.
type task struct {
	run func() int
	due bool
}

// later has the next Progress run a task.
func (h *ifaceCore) later(t *task) {
	if !t.due {
		t.due = true
		h.busy = append(h.busy, t)
	}
}

// runTasks runs the tasks that are due. One that becomes due meanwhile runs in the next round.
func (h *ifaceCore) runTasks() (n int) {
	h.working, h.busy = h.busy, h.working[:0]
	for i, t := range h.working {
		h.working[i] = nil
		t.due = false
		n += t.run()
	}
	return n
}

func (h *ifaceCore) opError(op string, err error) error {
	return &ucs.OpError{TL: h.name, Dev: h.Port().Name, Op: op, Err: err}
}
