package ucp

import (
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/uct"
)

// iface is an open transport of a worker. While nothing is connected over it, it
// rests: Progress does not poll it but looks now and then whether it has an event.
// An event makes it linger: it is polled for a while, since a peer that has said
// something is likely to go on, also one that puts and gets over a connection of
// which only the transport knows.
type iface struct {
	uct.Iface
	w      *Worker
	attr   *uct.IfaceAttr
	domain *domain
	md     int // number of the domain in the context
	index  int // in Worker.ifaces, and of the resource in the worker address
	users  int // transport endpoints that are open
	polled bool
	linger lingering
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
		i.w.restSoon(i)
	}
}

// restSoon has the next Progress try to let an iface rest.
func (w *Worker) restSoon(i *iface) {
	w.raise()
	w.resting = append(w.resting, i)
}

// poll has Progress poll the iface.
func (i *iface) poll() {
	i.polled = true
	i.linger.quiet = 0
	i.w.repoll()
}

// rest stops polling the iface if that is possible: it can tell of events, or
// nothing can arrive since its endpoints are made in pairs and there are none.
func (i *iface) rest() {
	if i.users > 0 {
		return
	}
	deaf := !i.hears()
	if i.w.ctx.cfg.ProgressIdle || !deaf && i.waker == nil {
		i.poll()
		return
	}
	i.polled = false
	if !deaf && !i.arm() {
		i.polled = true
		i.w.restSoon(i) // a flood: try again at the next progress
	}
	i.w.repoll()
}

// hears reports that something may arrive while nothing is connected.
func (i *iface) hears() bool { return i.attr.Caps.Has(uct.CapConnectIface) }

// arm asks for an event at the next arrival, after handling what is there. It
// reports whether that could be done.
func (i *iface) arm() bool {
	for range armTries {
		if i.waker.Arm(uct.EventRecv) != uct.ErrBusy {
			return true
		}
		i.Progress()
	}
	return false
}

// armTries bounds one attempt to catch up with arrivals.
const armTries = 64

// rouse handles the events of a resting iface, which lingers from now on.
func (i *iface) rouse() int {
	i.poll()
	return i.linger.Progress()
}

// lingering is an iface on which nothing is connected and that is polled since it
// had an event.
type lingering struct {
	i     *iface
	quiet int // polls since something happened
}

// lingerPolls is after how many polls in which nothing happened a lingering iface
// rests again: some 100 us, longer than a peer that is awake takes for an answer.
const lingerPolls = 4096

// Progress polls the iface, and ends its lingering.
func (l *lingering) Progress() int {
	if n := l.i.Iface.Progress(); n > 0 {
		l.quiet = 0
		return n
	}
	if l.quiet++; l.quiet == lingerPolls {
		l.i.w.restSoon(l.i)
	}
	return 0
}

// repoll makes the lists of ifaces that Progress polls and of those that rest.
func (w *Worker) repoll() {
	w.hot, w.watch, w.more, w.polled = nothing{}, quiet, nil, 0
	w.idle, w.mute, w.ears = nil, nil, nil
	for _, i := range w.ifaces {
		switch {
		case i.polled:
			w.pollToo(i)
		case !i.hears():
		case i.pender != nil:
			w.idle = append(w.idle, i)
		default:
			w.mute = append(w.mute, i)
			w.ears = append(w.ears, unix.PollFd{Fd: int32(i.waker.EventFD()), Events: unix.POLLIN})
		}
	}
	w.ticks = 0
}

func (w *Worker) pollToo(i *iface) {
	p, watch := progresser(i.Iface), watchOf(i.Iface)
	if i.users == 0 && i.waker != nil && !w.ctx.cfg.ProgressIdle {
		p, watch = &i.linger, busy
	}
	if w.polled++; w.polled == 1 {
		w.hot, w.watch = p, watch
	} else {
		w.more = append(w.more, p)
	}
}

// lookAtIdle rouses a resting iface that has an event.
func (w *Worker) lookAtIdle() int {
	for _, i := range w.idle {
		if i.pender.EventPending() {
			return i.rouse() // the lists have changed
		}
	}
	if len(w.mute) > 0 {
		if w.looks++; w.looks%looksPerPoll == 0 {
			return w.listen()
		}
	}
	return 0
}

// looksPerPoll is how many looks at flags go by between two system calls that ask
// about ifaces which have none: a call of 300 ns costs 20 ns a look then.
const looksPerPoll = 16

// listen asks the kernel about resting ifaces whose events only it can tell.
func (w *Worker) listen() int {
	n, err := unix.Poll(w.ears, 0)
	if n <= 0 || err != nil { // EINTR: the next look will do
		return 0
	}
	for k, i := range w.mute {
		if w.ears[k].Revents != 0 {
			return i.rouse() // the lists have changed
		}
	}
	return 0
}
