// Package epoll passes events of descriptors to their watchers, without waiting, and calls a
// watcher periodically while there are deadlines to check.
package epoll

import (
	"errors"
	"iter"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/epollnow"
	"github.com/gucx/gucx/internal/handle"
)

// batch is the maximum number of events of one call.
const batch = 16

// Watcher handles events.
type Watcher interface {
	// Ready handles the events that the kernel reported (EPOLLIN and so on). It returns the number
	// of arrivals and completions that it has handled. It may add, remove and change descriptors of
	// the Poller.
	Ready(events uint32) int
}

// Watch identifies a descriptor in a Poller; 0 identifies none. A late event of a descriptor that
// was removed has no effect.
type Watch uint64

// watched is a descriptor and its watcher.
type watched struct {
	fd int
	w  Watcher
}

// Poller is an epoll descriptor with a timer. It owns the descriptors that it watches. One
// goroutine owns it.
type Poller struct {
	fd      int
	timer   int
	tick    time.Duration // interval of ticks; 0: none
	onTick  Watcher
	due     int // maximum number of polls until onTick is called for an expired timer; 0: the timer has not expired
	watched handle.Table[*watched]
	events  [batch]unix.EpollEvent
}

// Open makes the descriptors, which undo closes. onTick is called for a tick and must call
// ReadTimer.
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

// FD returns the epoll descriptor. It is readable while Readable is true.
func (p *Poller) FD() int { return p.fd }

// Watch adds fd and passes its events to w. After an error the caller still owns fd.
func (p *Poller) Watch(fd int, events uint32, w Watcher) (Watch, error) {
	i := Watch(p.watched.Add(&watched{fd, w}))
	if err := p.control(unix.EPOLL_CTL_ADD, fd, i, events); err != nil {
		p.watched.Remove(uint64(i))
		return 0, os.NewSyscallError("epoll_ctl", err)
	}
	return i, nil
}

// control changes the events of fd that the kernel reports for i.
func (p *Poller) control(op, fd int, i Watch, events uint32) error {
	return unix.EpollCtl(p.fd, op, fd, &unix.EpollEvent{Events: events, Fd: int32(i), Pad: int32(i >> 32)})
}

// Change sets the events to report. It cannot fail for a watched descriptor.
func (p *Poller) Change(i Watch, events uint32) {
	_ = p.control(unix.EPOLL_CTL_MOD, p.watched.Find(uint64(i)).fd, i, events)
}

// SetWatcher passes later events of i to w.
func (p *Poller) SetWatcher(i Watch, w Watcher) { p.watched.Find(uint64(i)).w = w }

// Remove removes and closes the descriptor.
func (p *Poller) Remove(i Watch) error {
	fd := p.watched.Find(uint64(i)).fd
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil)
	p.watched.Remove(uint64(i))
	return os.NewSyscallError("close", unix.Close(fd))
}

// Poll handles the events that are ready now. any reports whether there were any. A tick is handled
// after all events that were ready with it: before a watcher checks a deadline, it has read what
// arrived in time, also if the process was not scheduled in between.
func (p *Poller) Poll() (n int, any bool) {
	k, _ := epollnow.Poll(p.fd, p.events[:]) // EINTR, or none: the next call finds them
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

// Ready implements Watcher for the timer. The kernel reports ready descriptors in turn, so that
// within this number of polls each is reported.
func (p *Poller) Ready(uint32) int {
	if p.due == 0 {
		p.due = p.watched.Len()/batch + 2
	}
	return 0
}

// tickAfter calls onTick if a poll with k events has reported all ready descriptors, or if enough
// polls have passed.
func (p *Poller) tickAfter(k int) int {
	if p.due--; k == batch && p.due > 0 {
		return 0
	}
	p.due = 0
	return p.onTick.Ready(unix.EPOLLIN)
}

// Readable reports whether an event is ready. It does not handle it.
func (p *Poller) Readable() bool {
	n, _ := epollnow.Poll(p.fd, p.events[:1])
	return n > 0
}

// SetTick sets the interval of ticks; 0 disables them. If the interval does not change, the running
// timer continues.
func (p *Poller) SetTick(every time.Duration) error {
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

// TickInterval returns the interval of ticks; 0 for none.
func (p *Poller) TickInterval() time.Duration { return p.tick }

// ReadTimer clears the event of the timer.
func (p *Poller) ReadTimer() {
	var b [8]byte
	_, _ = unix.Read(p.timer, b[:])
}

// All returns the watched descriptors except the timer. The loop may remove them.
func (p *Poller) All() iter.Seq2[int, Watcher] {
	return func(yield func(int, Watcher) bool) {
		for d := range p.watched.All() {
			if d.fd != p.timer && !yield(d.fd, d.w) {
				return
			}
		}
	}
}

// Places returns the maximum number of descriptors that were watched at the same time.
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
