package xrccore

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
)

// ifaceCore is the part of the iface that its queues and its node use: the core, posts to other
// queues, and tasks for the next Progress. The owner of the iface calls its methods.
type ifaceCore struct {
	*rccore.Iface
	poster Poster
	name   string
	cfg    Config

	round     uint64  // number of calls of Progress
	allPolled uint64  // number of rounds that poll a full completion queue
	due       []*task // run in the next round
	running   []*task // run in this round
}

// task is the work of an EP in the next Progress, if it is due. run returns the number of events
// that it handled.
type task struct {
	run func() int
	due bool
}

// schedule makes the next Progress run a task.
func (h *ifaceCore) schedule(t *task) {
	if !t.due {
		t.due = true
		h.due = append(h.due, t)
	}
}

// runTasks runs the due tasks. A task that becomes due meanwhile runs in the next round.
func (h *ifaceCore) runTasks() (n int) {
	h.running, h.due = h.due, h.running[:0]
	for i, t := range h.running {
		h.running[i] = nil
		t.due = false
		n += t.run()
	}
	return n
}

func (h *ifaceCore) opError(op string, err error) error {
	return &ucs.OpError{TL: h.name, Dev: h.Port().Name, Op: op, Err: err}
}
