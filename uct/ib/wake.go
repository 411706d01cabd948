package ib

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Wake is what an iface sleeps on: one epoll descriptor over the completion
// channel, an eventfd for word from other goroutines, and a timer. Raise may be
// called by any goroutine until undo closes them, the rest by the owner of the iface.
type Wake struct {
	epoll, event, timer int
	channel             *verbs.CompChannel
	word                *atomic.Uint32
	unread              int64 // calls of Lower less what they and Arm have read: more than 0 while a Raise has still to write
}

// Raised is the bit that Raise sets in the word of OpenWake.
const Raised = 1 << 31

// OpenWake makes a completion channel and what it is waited for with, closed by functions that undo gets.
// Raise sets the bit Raised of word, so that Progress looks at one word of the iface;
// the other bits are the iface's own.
func (md *MD) OpenWake(word *atomic.Uint32, undo func(step func() error)) (*Wake, error) {
	channel, err := md.ctx.CreateCompChannel()
	if err != nil {
		return nil, fmt.Errorf("create completion channel: %w", err)
	}
	undo(channel.Close)
	w := &Wake{channel: channel, word: word}
	return w, w.open(undo)
}

// open makes the descriptors.
func (w *Wake) open(undo func(step func() error)) (err error) {
	open := func(fd *int, call string, f func() (int, error)) error {
		n, err := f()
		if err != nil {
			return os.NewSyscallError(call, err)
		}
		*fd = n
		undo(func() error { return unix.Close(n) })
		return nil
	}
	if err = open(&w.epoll, "epoll_create1", func() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) }); err != nil {
		return err
	}
	if err = open(&w.event, "eventfd2", func() (int, error) { return unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC) }); err != nil {
		return err
	}
	if err = open(&w.timer, "timerfd_create", func() (int, error) {
		return unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	}); err != nil {
		return err
	}
	for _, fd := range []int{w.channel.FD(), w.event, w.timer} {
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
		if err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
			return os.NewSyscallError("epoll_ctl", err)
		}
	}
	return nil
}

// Channel is for the completion queue that Arm is about.
func (w *Wake) Channel() *verbs.CompChannel { return w.channel }

// FD is readable when there is something to do.
func (w *Wake) FD() int { return w.epoll }

// Pending reports, without a system call, whether an armed completion event or
// word from another goroutine has come. The timer is not looked at.
func (w *Wake) Pending() bool { return w.raised() || w.channel.Pending() }

func (w *Wake) raised() bool { return w.word.Load()&Raised != 0 }

// Raise sets Raised and wakes the sleeper. Word must be left before.
func (w *Wake) Raise() {
	if w.word.Or(Raised)&Raised == 0 {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		// It can only fail when the counter is full, which wakes as well.
		_, _ = unix.Write(w.event, one[:])
	}
}

// Lower takes Raise back. The word that was left must be read after.
func (w *Wake) Lower() {
	if w.word.And(^uint32(Raised))&Raised != 0 {
		w.unread++
		w.read()
	}
}

// read reads what Raise has written, as a readable descriptor ends every sleep. A Raise that has set
// its bit and not written yet (EAGAIN) leaves that to the next Arm.
func (w *Wake) read() {
	if w.unread <= 0 {
		return
	}
	var count [8]byte
	if _, err := unix.Read(w.event, count[:]); err == nil {
		w.unread -= int64(binary.NativeEndian.Uint64(count[:]))
	}
}

// Armer asks for an event at the next completion: a verbs.CQ, or what drives the
// queue of one.
type Armer interface {
	Arm(solicitedOnly bool) error
}

// Arm asks for an event at the next completion of cq, and after d if d > 0.
// ErrBusy means that there may be something to do already.
func (w *Wake) Arm(cq Armer, d time.Duration) error {
	w.read()
	if w.raised() {
		return uct.ErrBusy
	}
	for w.channel.TryGet() != nil {
	}
	if err := cq.Arm(false); err != nil {
		return err
	}
	if err := w.setTimer(d); err != nil {
		return err
	}
	if w.Pending() {
		return uct.ErrBusy
	}
	return nil
}

func (w *Wake) setTimer(d time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(d), 0))}
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(w.timer, 0, &spec, nil))
}
