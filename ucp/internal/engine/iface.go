package engine

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Iface is an open transport. While nothing is connected over it, it rests: Progress does
// not poll it but looks now and then whether it has an event. An event activates it: it is
// polled for a while, since a peer that has said something is likely to go on, also one
// that puts and gets over a connection of which only the transport knows. While its endpoints
// wait for acknowledgements only, which the peer may send when it likes, it is polled at those
// looks: events would not tell when to send again.
type Iface struct {
	uct.Iface
	e        *Engine
	users    int  // transport endpoints that are open
	draining int  // those of them that wait for acknowledgements only
	polled   bool // by each Progress
	unread   bool // at the last sleep: nobody reads its descriptor; of the goroutine that parks
	cooldown cooldown
	waker    uct.Waker       // nil if it has no events
	pender   uct.EventPender // nil if its events cannot be seen without a system call
	watch    *ucs.Watch      // nil if it has none
	guarded  bool            // it finds by itself when two goroutines poll it
	woke     atomic.Bool     // its descriptor has ended a sleep while it was unread; stored by Park, pairs with the swap in pollWoken
}

// Add takes an open iface into the engine, which polls it once Start was called.
func (e *Engine) Add(i *Iface, u uct.Iface) {
	ext := u.Ext()
	i.Iface, i.e = u, e
	i.waker, i.pender, i.watch, i.guarded = ext.Wake, ext.Pending, watchOf(ext), ext.Guarded
	i.cooldown.i = i
	if ext.Push != nil {
		e.pushers = append(e.pushers, ext.Push)
	}
	e.ifaces = append(e.ifaces, i)
}

// AddLater is Add once Start was called, also while another goroutine parks. The iface is polled until
// it was found that it may rest. Error: of the kernel, which watches no more descriptors; the iface is
// not taken then.
func (e *Engine) AddLater(i *Iface, u uct.Iface) error {
	if waker := u.Ext().Wake; e.park != nil && waker != nil {
		if err := e.park.watch(waker.EventFD(), int32(len(e.ifaces))); err != nil {
			return err
		}
	}
	e.Add(i, u)
	i.poll()
	e.restSoon(i)
	e.Signal()
	return nil
}

// Polled reports whether each Progress polls the iface.
func (i *Iface) Polled() bool { return i.polled }

// Users is how many transport endpoints are open.
func (i *Iface) Users() int { return i.users }

// Retain counts a transport endpoint; the first one that does not drain makes Progress poll the
// iface.
func (i *Iface) Retain() {
	if i.users++; i.users == i.draining+1 {
		i.poll()
	}
}

// Release is called after a transport endpoint was closed. After the last one the iface
// rests. An iface at which nothing arrives stays polled: an endpoint of a pair may still have
// to tell its peer that it is closed.
func (i *Iface) Release() {
	switch i.users--; {
	case i.users > i.draining || i.e.stopped:
	case i.users == 0 && (i.canReceive() || i.waker == nil):
		i.e.restSoon(i)
	default:
		i.poll()
	}
}

// BeginDrain tells that an open endpoint has nothing more to do than to wait for the peer's
// acknowledgement; EndDrain ends that, before the endpoint is used again or closed. When nothing
// has come for a while, the iface is polled now and then only, unless other endpoints need more.
func (i *Iface) BeginDrain() {
	if i.draining++; i.draining == i.users {
		i.poll()
	}
}

// EndDrain ends what BeginDrain has begun.
func (i *Iface) EndDrain() {
	if i.draining--; !i.e.stopped {
		i.poll()
	}
}

// restSoon has the next Progress try to let an iface rest.
func (e *Engine) restSoon(i *Iface) {
	e.Raise()
	e.resting = append(e.resting, i)
}

// poll has Progress poll the iface.
func (i *Iface) poll() {
	i.polled = true
	i.cooldown.quiet = 0
	i.e.repoll()
}

// rest stops polling the iface if that is possible: it can tell of events, or
// nothing can arrive since its endpoints are made in pairs and there are none. One with endpoints
// that drain is polled now and then, and needs events only to wake a sleeper.
func (i *Iface) rest() {
	if i.users > i.draining {
		return
	}
	canReceive := i.canReceive()
	if i.e.pollIdle || (canReceive || i.users > 0) && i.waker == nil {
		i.poll()
		return
	}
	i.polled = false
	if i.users == 0 && canReceive && !i.arm() {
		i.polled = true
		i.e.restSoon(i) // a flood: try again at the next progress
	}
	i.e.repoll()
}

// canReceive reports that something may arrive while nothing is connected.
func (i *Iface) canReceive() bool { return i.Attr().Caps.Has(uct.CapConnectIface) }

// arm asks for an event at the next arrival, after handling what is there. It
// reports whether that could be done.
func (i *Iface) arm() bool {
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

// activate handles the events of an iface that is not polled, which is from now on.
func (i *Iface) activate() int {
	i.poll()
	return i.cooldown.Progress()
}

// cooldown is an iface on which nothing is connected, or which only drains, and that is polled
// since it had an event or began to.
type cooldown struct {
	i     *Iface
	quiet int // polls since something happened
}

// CooldownPolls is after how many polls in which nothing happened an active iface
// rests again: some 100 us, longer than a peer that is awake takes for an answer.
const CooldownPolls = 4096

// Progress polls the iface, and ends its cooldown.
func (l *cooldown) Progress() int {
	if n := l.i.Iface.Progress(); n > 0 {
		l.quiet = 0
		return n
	}
	if l.quiet++; l.quiet == CooldownPolls {
		l.i.e.restSoon(l.i)
	}
	return 0
}

// repoll makes the lists of ifaces that Progress polls, of those that drain and of those that rest.
func (e *Engine) repoll() {
	e.setHot(nothing{}, quiet, false)
	e.polled, e.kernel = 0, false
	e.idle, e.draining, e.unflagged, e.eventFDs = nil, nil, nil, nil
	for _, i := range e.ifaces {
		switch {
		case i.polled:
			e.pollToo(i)
		case i.users > 0:
			e.draining = append(e.draining, i)
		case !i.canReceive():
		case i.pender != nil:
			e.idle = append(e.idle, i)
		default:
			e.unflagged = append(e.unflagged, i)
			e.eventFDs = append(e.eventFDs, unix.PollFd{Fd: int32(i.waker.EventFD()), Events: unix.POLLIN})
		}
	}
	e.Ticks = due
}

func (e *Engine) pollToo(i *Iface) {
	e.kernel = e.kernel || i.waker != nil && i.pender == nil
	p, watch, guarded := poller(i.Iface), i.watch, i.guarded
	if i.users == i.draining && i.waker != nil && !e.pollIdle {
		p, watch, guarded = &i.cooldown, nil, false
	}
	switch e.polled++; e.polled {
	case 1:
		e.setHot(p, watch, guarded)
	case 2:
		e.setHot(several{e.hot, p}, nil, false)
	default:
		e.hot = append(e.hot.(several), p)
	}
}

// lookAtIdle polls those that drain, and activates an iface over which something came: a resting
// one that has an event, or one of those.
func (e *Engine) lookAtIdle() int {
	for _, i := range e.draining {
		if n := i.Iface.Progress(); n > 0 {
			i.poll() // the lists have changed
			return n
		}
	}
	for _, i := range e.idle {
		if i.pender.EventPending() {
			return i.activate() // the lists have changed
		}
	}
	if len(e.unflagged) > 0 {
		if e.looks++; e.looks%LooksPerPoll == 0 {
			return e.listen()
		}
	}
	return 0
}

// LooksPerPoll is how many looks at flags go by between two system calls that ask
// about ifaces which have none: a call of 300 ns costs 20 ns a look then.
const LooksPerPoll = 16

// listen asks the kernel about resting ifaces whose events only it can tell.
func (e *Engine) listen() int {
	_, _ = unix.Poll(e.eventFDs, 0) // an error reports no event: the next look will do
	for k, i := range e.unflagged {
		if e.eventFDs[k].Revents != 0 {
			return i.activate() // the lists have changed
		}
	}
	return 0
}
