// Package epoll reports what happens to descriptors to their watchers, without waiting,
// and ticks while there are deadlines to look at.
package epoll

import (
	"errors"
	"iter"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/handle"
)

// batch is the number of events taken with one call.
const batch = 16

// Watcher is what an event is for.
type Watcher interface {
	// Ready is told what the kernel reported (EPOLLIN and so on) and returns the
	// arrivals and completions handled. It may watch, forget and rewatch descriptors.
	Ready(events uint32) int
}

// Watch names a descriptor in a Poller; 0 names none. An event that comes late, when the
// descriptor is not watched any more, finds nothing.
type Watch uint64

// watched is a descriptor.
type watched struct {
	fd int
	w  Watcher
}

// Poller is an epoll descriptor with a timer in it. It owns the descriptors that it
// watches. It belongs to one goroutine.
type Poller struct {
	fd      int
	timer   int
	tick    time.Duration // between two ticks; 0: none
	onTick  Watcher
	due     int // looks at most until a tick that has come is told; 0: none has
	watched handle.Table[*watched]
	events  [batch]unix.EpollEvent
}

// Open makes the descriptors, which undo closes; onTick watches the timer and is to call
// Ticked.
func (p *Poller) Open(onTick Watcher, undo *cleanup.Stack) (err error) {
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	undo.Add(func() error { return unix.Close(p.fd) })
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	undo.Add(func() error { return unix.Close(p.timer) })
	p.onTick = onTick
	_, err = p.Watch(p.timer, unix.EPOLLIN, p)
	return err
}

// FD is the epoll descriptor: readable while Readable.
func (p *Poller) FD() int { return p.fd }

// Watch reports events of fd to w from now on. After an error fd is still the caller's.
func (p *Poller) Watch(fd int, events uint32, w Watcher) (Watch, error) {
	i := Watch(p.watched.Add(&watched{fd, w}))
	if err := p.control(unix.EPOLL_CTL_ADD, fd, i, events); err != nil {
		p.watched.Remove(uint64(i))
		return 0, os.NewSyscallError("epoll_ctl", err)
	}
	return i, nil
}

// control tells the kernel which events of fd are reported with the name i.
func (p *Poller) control(op, fd int, i Watch, events uint32) error {
	return unix.EpollCtl(p.fd, op, fd, &unix.EpollEvent{Events: events, Fd: int32(i), Pad: int32(i >> 32)})
}

// Change reports other events. An error cannot happen to a watched descriptor.
func (p *Poller) Change(i Watch, events uint32) {
	_ = p.control(unix.EPOLL_CTL_MOD, p.watched.Find(uint64(i)).fd, i, events)
}

// Rewatch reports the events of i to w from now on.
func (p *Poller) Rewatch(i Watch, w Watcher) { p.watched.Find(uint64(i)).w = w }

// Forget stops the reports and closes the descriptor.
func (p *Poller) Forget(i Watch) error {
	fd := p.watched.Find(uint64(i)).fd
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil)
	p.watched.Remove(uint64(i))
	return os.NewSyscallError("close", unix.Close(fd))
}

// Look handles what is ready now. any says whether something was. A tick is told behind
// everything that was ready with it: who finds by the clock that something has not come in time has
// looked for it before, also when the process stood still meanwhile.
func (p *Poller) Look() (n int, any bool) {
	k := pollNow(p.fd, p.events[:])
	for i := range p.events[:k] {
		ev := &p.events[i]
		if d := p.watched.Find(uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32); d != nil {
			n += d.w.Ready(ev.Events)
		}
	}
	if p.due > 0 {
		n += p.tickAfter(k)
	}
	return n, k > 0
}

// Ready implements Watcher for the timer. Descriptors that are ready take turns, so that each is
// seen in so many looks.
func (p *Poller) Ready(uint32) int {
	if p.due == 0 {
		p.due = p.watched.Len()/batch + 2
	}
	return 0
}

// tickAfter tells the tick if the look, which took k events, left none or was the last to be
// waited for.
func (p *Poller) tickAfter(k int) int {
	if p.due--; k == batch && p.due > 0 {
		return 0
	}
	p.due = 0
	return p.onTick.Ready(unix.EPOLLIN)
}

// Readable reports whether an event waits, and takes none.
func (p *Poller) Readable() bool { return pollNow(p.fd, p.events[:1]) > 0 }

// Tick sets the time between two ticks, from now on; 0 turns them off. The time that is set
// already goes on.
func (p *Poller) Tick(every time.Duration) error {
	if every == p.tick {
		return nil
	}
	var spec unix.ItimerSpec
	spec.Interval = unix.NsecToTimespec(int64(every))
	spec.Value = spec.Interval
	if err := unix.TimerfdSettime(p.timer, 0, &spec, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	p.tick = every
	return nil
}

// Ticking is the time between two ticks, 0 for none.
func (p *Poller) Ticking() time.Duration { return p.tick }

// Ticked takes the timer's event.
func (p *Poller) Ticked() {
	var b [8]byte
	_, _ = unix.Read(p.timer, b[:])
}

// All is the watched descriptors except the timer. The loop may forget them.
func (p *Poller) All() iter.Seq2[int, Watcher] {
	return func(yield func(int, Watcher) bool) {
		for d := range p.watched.All() {
			if d.fd != p.timer && !yield(d.fd, d.w) {
				return
			}
		}
	}
}

// Places is the most descriptors that were watched at a time.
func (p *Poller) Places() int { return p.watched.Places() }

// CloseAll closes every watched descriptor except the timer.
func (p *Poller) CloseAll() error {
	var errs []error
	for d := range p.watched.All() {
		if d.fd != p.timer {
			errs = append(errs, os.NewSyscallError("close", unix.Close(d.fd)))
		}
	}
	p.watched = handle.Table[*watched]{}
	return errors.Join(errs...)
}
