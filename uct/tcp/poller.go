package tcp

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
)

// tickInterval is how often deadlines are looked at while there are any.
const tickInterval = 20 * time.Millisecond

// pollBatch is the number of events taken with one call.
const pollBatch = 16

// watcher is what an event is for.
type watcher interface {
	// ready is told what the kernel reported (EPOLLIN and so on) and returns the
	// arrivals and completions handled.
	ready(events uint32) int
}

// poller is an epoll descriptor with a timer in it.
type poller struct {
	fd      int
	timer   int
	ticking bool
	slots   []slot
	free    []int32
	events  [pollBatch]unix.EpollEvent
}

// slot is a watched descriptor. The generation tells events of a descriptor that
// is not watched any more from those of its successor.
type slot struct {
	fd  int
	gen int32
	w   watcher
}

func (p *poller) open(onTick watcher, undo *cleanup.Stack) (err error) {
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	undo.Add(func() error { return unix.Close(p.fd) })
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	undo.Add(func() error { return unix.Close(p.timer) })
	_, err = p.watch(p.timer, unix.EPOLLIN, onTick)
	return err
}

// watch starts to report events of fd to w. The number is for change and forget.
func (p *poller) watch(fd int, events uint32, w watcher) (int32, error) {
	var i int32
	if last := len(p.free) - 1; last >= 0 {
		i = p.free[last]
		p.free = p.free[:last]
	} else {
		i = int32(len(p.slots))
		p.slots = append(p.slots, slot{})
	}
	s := &p.slots[i]
	s.fd, s.w = fd, w
	ev := unix.EpollEvent{Events: events, Fd: i, Pad: s.gen}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		s.w = nil
		p.free = append(p.free, i)
		return 0, os.NewSyscallError("epoll_ctl", err)
	}
	return i, nil
}

// change asks for other events. An error cannot happen to a watched descriptor.
func (p *poller) change(i int32, events uint32) {
	ev := unix.EpollEvent{Events: events, Fd: i, Pad: p.slots[i].gen}
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, p.slots[i].fd, &ev)
}

// rewatch reports the events of descriptor i to w from now on.
func (p *poller) rewatch(i int32, w watcher) { p.slots[i].w = w }

// forget stops the reports and closes the descriptor.
func (p *poller) forget(i int32) error {
	s := &p.slots[i]
	fd := s.fd
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil)
	s.w, s.fd = nil, -1
	s.gen++
	p.free = append(p.free, i)
	return os.NewSyscallError("close", unix.Close(fd))
}

// look handles what is ready now. any says whether something was.
func (p *poller) look() (n int, any bool) {
	k := pollNow(p.fd, p.events[:])
	for i := range p.events[:k] {
		ev := &p.events[i]
		s := &p.slots[ev.Fd]
		if s.gen == ev.Pad && s.w != nil {
			n += s.w.ready(ev.Events)
		}
	}
	return n, k > 0
}

// readable reports whether an event waits, and takes none.
func (p *poller) readable() bool { return pollNow(p.fd, p.events[:1]) > 0 }

// tick turns the timer on or off.
func (p *poller) tick(on bool) error {
	if on == p.ticking {
		return nil
	}
	var spec unix.ItimerSpec
	if on {
		spec.Interval = unix.NsecToTimespec(int64(tickInterval))
		spec.Value = spec.Interval
	}
	if err := unix.TimerfdSettime(p.timer, 0, &spec, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	p.ticking = on
	return nil
}

// ticked takes the timer's event.
func (p *poller) ticked() {
	var b [8]byte
	_, _ = unix.Read(p.timer, b[:])
}

// closeAll closes every watched descriptor except the timer.
func (p *poller) closeAll() error {
	var errs []error
	for i := range p.slots {
		if s := &p.slots[i]; s.w != nil && s.fd != p.timer {
			errs = append(errs, p.forget(int32(i)))
		}
	}
	return errors.Join(errs...)
}
