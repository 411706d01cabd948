package engine

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Iface is an open transport. An iface without endpoints rests: Progress does
// not poll it, but checks periodically whether it has an event. An event activates the iface: Progress
// polls it for a while, because more messages are likely to follow, and because a peer may
// put and get over a connection that only the transport knows. If all endpoints of the iface
// only wait for acknowledgements, Progress polls it at these checks, because no event
// reports that a retransmission is due.
type Iface struct {
	uct.Iface
	e        *Engine
	users    int  // open transport endpoints
	draining int  // of users: endpoints that only wait for acknowledgements
	polled   bool // each Progress polls it
	unread   bool // at the last sleep: neither polled nor armed, so its descriptor is not read; used by the goroutine that parks
	cooldown cooldown
	waker    uct.Waker       // nil if the iface has no events
	pender   uct.EventPender // nil if a check for events needs a system call
	watch    *ucs.Watch      // nil if the iface has none
	checker  uct.ArmChecker  // nil: each post needs Progress
	armed    bool            // for all events, since the last sleep
	guarded  bool            // the iface itself detects concurrent polls
	woke     atomic.Bool     // its descriptor has ended a sleep while it was unread; stored by Park, pairs with the swap in pollWoken
}

// Add adds an open iface to the engine, which polls it after Start.
func (e *Engine) Add(i *Iface, u uct.Iface) {
	ext := u.Ext()
	i.Iface, i.e = u, e
	i.waker, i.pender, i.watch, i.checker, i.guarded = ext.Wake, ext.Pending, watchOf(ext), ext.Armed, ext.Guarded
	i.cooldown.i = i
	if ext.Push != nil {
		e.pushers = append(e.pushers, ext.Push)
	}
	e.ifaces = append(e.ifaces, i)
}

// AddLater is Add after Start, also while another goroutine parks. Progress polls the iface until
// the iface can rest. If the kernel cannot watch its descriptor, AddLater returns the
// error and does not add the iface.
func (e *Engine) AddLater(i *Iface, u uct.Iface) error {
	if waker := u.Ext().Wake; e.park != nil && waker != nil {
		if err := e.park.watch(waker.EventFD(), int32(len(e.ifaces))); err != nil {
			return err
		}
	}
	e.Add(i, u)
	i.poll()
	e.scheduleRest(i)
	e.Signal()
	return nil
}

// Polled reports whether each Progress polls the iface.
func (i *Iface) Polled() bool { return i.polled }

// Users returns the number of open transport endpoints.
func (i *Iface) Users() int { return i.users }

// Retain counts a transport endpoint. While the iface has endpoints that do not drain, Progress polls it.
func (i *Iface) Retain() {
	if i.users++; i.users == i.draining+1 {
		i.poll()
	}
}

// Release uncounts a transport endpoint that was closed. After the last one the iface
// rests. An iface that cannot receive messages without endpoints is polled for a while, because an endpoint may
// still have to notify its peer of the close.
func (i *Iface) Release() {
	switch i.users--; {
	case i.users > i.draining || i.e.stopped:
	case i.users == 0 && (i.canReceive() || i.waker == nil):
		i.e.scheduleRest(i)
	default:
		i.poll()
	}
}

// BeginDrain declares that an open endpoint only waits for the peer's
// acknowledgement. The caller must call EndDrain before it uses or closes the endpoint. After CooldownPolls polls without
// an event the iface is polled only at the periodic checks, unless it has other endpoints.
func (i *Iface) BeginDrain() {
	if i.draining++; i.draining == i.users {
		i.poll()
	}
}

// EndDrain reverts BeginDrain.
func (i *Iface) EndDrain() {
	if i.draining--; !i.e.stopped {
		i.poll()
	}
}

// scheduleRest makes the next Progress try to let an iface rest.
func (e *Engine) scheduleRest(i *Iface) {
	e.Raise()
	e.resting = append(e.resting, i)
}

// poll makes Progress poll the iface.
func (i *Iface) poll() {
	i.polled = true
	i.cooldown.quiet = 0
	i.e.repoll()
}

// rest stops polling the iface if it has events, or if
// nothing can arrive because its endpoints are connected in pairs and there are none. An iface with
// draining endpoints is polled at the periodic checks, and needs events only to end a sleep.
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
		i.e.scheduleRest(i) // messages keep arriving: try again at the next progress
	}
	i.e.repoll()
}

// canReceive reports whether messages can arrive while the iface has no endpoint.
func (i *Iface) canReceive() bool { return i.Attr().Caps.Has(uct.CapConnectIface) }

// arm handles messages that have arrived and requests an event for the next arrival. It
// reports whether the event is armed.
func (i *Iface) arm() bool {
	i.armed = false // for other events
	for range armTries {
		if i.waker.Arm(uct.EventRecv) != uct.ErrBusy {
			return true
		}
		i.Progress()
	}
	return false
}

// stillArmed reports whether events of the iface end a sleep that has begun, whatever was posted since then.
func (i *Iface) stillArmed() bool {
	switch {
	case !i.armed:
		return false
	case i.watch != nil:
		return i.watch.Idle()
	}
	return i.checker != nil && i.checker.StillArmed()
}

// armTries limits the attempts to arm the iface while messages keep arriving.
const armTries = 64

// activate handles the events of a resting iface, and makes Progress poll it.
func (i *Iface) activate() int {
	i.poll()
	return i.cooldown.Progress()
}

// cooldown polls an iface without endpoints, or with draining ones only, for a while
// after an event or after BeginDrain.
type cooldown struct {
	i     *Iface
	quiet int // number of polls since the last event
}

// CooldownPolls is the number of polls without an event after which an active iface
// rests again: about 100 us, longer than a running peer needs for a reply.
const CooldownPolls = 4096

// Progress polls the iface, and ends its cooldown.
func (l *cooldown) Progress() int {
	if n := l.i.Iface.Progress(); n > 0 {
		l.quiet = 0
		return n
	}
	if l.quiet++; l.quiet == CooldownPolls {
		l.i.e.scheduleRest(l.i)
	}
	return 0
}

// repoll rebuilds the lists of polled, draining and resting ifaces. After Stop it does nothing: an event may have ended the sleep of
// a goroutine while another one closed the engine, and a later Progress handles that event.
func (e *Engine) repoll() {
	if e.stopped {
		return
	}
	e.setHot(noPoller{}, quiet, false)
	e.polled, e.kernel = 0, false
	e.idle, e.draining, e.unflagged, e.eventFDs = nil, nil, nil, nil
	for _, i := range e.ifaces {
		switch {
		case i.polled:
			e.addPolled(i)
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

func (e *Engine) addPolled(i *Iface) {
	e.kernel = e.kernel || i.waker != nil && i.pender == nil
	p, watch, guarded := poller(i.Iface), i.watch, i.guarded
	if i.users == i.draining && i.waker != nil && !e.pollIdle {
		p, watch, guarded = &i.cooldown, nil, false
	}
	switch e.polled++; e.polled {
	case 1:
		e.setHot(p, watch, guarded)
	case 2:
		e.setHot(manyPollers{e.hot, p}, nil, false)
	default:
		e.hot = append(e.hot.(manyPollers), p)
	}
}

// checkIdle polls draining ifaces and checks the flags of resting ones. It activates the first iface with
// an event.
func (e *Engine) checkIdle() int {
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
		if e.idleChecks++; e.idleChecks%ChecksPerSyscall == 0 {
			return e.pollUnflagged()
		}
	}
	return 0
}

// ChecksPerSyscall is the number of checks of flags for each system call that checks
// ifaces without flags: a call of 300 ns then adds 20 ns to a check.
const ChecksPerSyscall = 16

// pollUnflagged checks, with a system call, whether resting ifaces without a flag have events.
func (e *Engine) pollUnflagged() int {
	_, _ = unix.Poll(e.eventFDs, 0) // after an error, the next check finds the event
	for k, i := range e.unflagged {
		if e.eventFDs[k].Revents != 0 {
			return i.activate() // the lists have changed
		}
	}
	return 0
}
