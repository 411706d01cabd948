package ucp

import (
	"slices"

	"github.com/gucx/gucx/uct"
)

// iface is an open transport of a worker. While nothing is connected over it, it
// rests: Progress does not poll it but looks at a flag that its events raise.
type iface struct {
	uct.Iface
	w      *Worker
	attr   *uct.IfaceAttr
	md     int // index of the domain
	index  int // in Worker.ifaces, and of the resource in the worker address
	users  int // transport endpoints that are open
	polled bool
	waker  uct.Waker       // nil if it has no events
	pender uct.EventPender // nil if its events cannot be seen without a system call
}

// retain counts a transport endpoint; the first one makes Progress poll the iface.
func (i *iface) retain() {
	if i.users++; i.users == 1 {
		i.poll()
	}
}

// release is called after a transport endpoint was closed; the last one lets the
// iface rest.
func (i *iface) release() {
	if i.users--; i.users == 0 {
		i.w.raise()
		i.w.resting = append(i.w.resting, i)
	}
}

// poll has Progress poll the iface.
func (i *iface) poll() {
	if i.polled {
		return
	}
	i.polled = true
	i.w.repoll()
	if i.pender != nil {
		i.w.idle = slices.DeleteFunc(i.w.idle, func(p uct.EventPender) bool { return p == i.pender })
	}
}

// rest stops polling the iface if that is possible: it can tell of events, or
// nothing can arrive since its endpoints are made in pairs and there are none.
func (i *iface) rest() {
	if i.users > 0 {
		return
	}
	deaf := !i.hears()
	if i.w.ctx.cfg.ProgressIdle || !deaf && (i.pender == nil || i.waker == nil) {
		i.poll()
		return
	}
	if i.polled {
		i.polled = false
		i.w.repoll()
	}
	if deaf {
		return
	}
	if !slices.Contains(i.w.idle, i.pender) {
		i.w.idle = append(i.w.idle, i.pender)
	}
	i.arm()
}

// hears reports that something may arrive while nothing is connected.
func (i *iface) hears() bool { return i.attr.Caps.Has(uct.CapConnectIface) }

// arm asks for an event at the next arrival, after handling what is there.
func (i *iface) arm() {
	for range armTries {
		if i.waker.Arm(uct.EventRecv) != uct.ErrBusy {
			return
		}
		i.Progress()
	}
	i.w.raise() // a flood: look again at the next progress
	i.w.resting = append(i.w.resting, i)
}

// armTries bounds one attempt to catch up with arrivals.
const armTries = 64

// roused handles the events of a resting iface and asks for the next.
func (w *Worker) roused(p uct.EventPender) int {
	for _, i := range w.ifaces {
		if i.pender == p {
			n := i.Progress()
			if !i.polled {
				i.arm()
			}
			return n
		}
	}
	return 0
}

// repoll makes the list of ifaces that Progress polls.
func (w *Worker) repoll() {
	w.hot, w.watch, w.more, w.polled = nothing{}, quiet, nil, 0
	for _, i := range w.ifaces {
		if !i.polled {
			continue
		}
		if w.polled++; w.polled == 1 {
			w.hot, w.watch = i.Iface, watchOf(i.Iface)
		} else {
			w.more = append(w.more, i.Iface)
		}
	}
	w.ticks = 0
}
