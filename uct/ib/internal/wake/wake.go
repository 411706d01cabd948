// Package wake has the event source of an iface over verbs: completions, events of other goroutines and a timer behind
// one descriptor.
package wake

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

// Source is the event source of an iface: one epoll descriptor over the completion channel, an
// eventfd for events of other goroutines, and a timer. Any goroutine may call Raise until undo
// closes the descriptors; only the owner of the iface may call the other methods.
type Source struct {
	epoll, event, timer int
	channel             *verbs.CompChannel
	word                *atomic.Uint32
	unread              int64 // number of calls of Lower minus the count that was read from the eventfd; above 0 while a Raise has not written yet
}

// Raised is the bit that Raise sets in the word of Open.
const Raised = 1 << 31

// Open makes a completion channel of ctx and the other descriptors. It passes functions that close
// them to undo. Raise sets the bit Raised of word, so that Progress checks only one word of the
// iface. The iface may use the other bits.
func Open(ctx *verbs.Context, word *atomic.Uint32, undo func(step func() error)) (*Source, error) {
	channel, err := ctx.CreateCompChannel()
	if err != nil {
		return nil, fmt.Errorf("create completion channel: %w", err)
	}
	undo(channel.Close)
	w := &Source{channel: channel, word: word}
	return w, w.open(undo)
}

// open makes the descriptors.
func (w *Source) open(undo func(step func() error)) (err error) {
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

// Channel returns the completion channel for the completion queue of Arm.
func (w *Source) Channel() *verbs.CompChannel { return w.channel }

// FD returns the epoll descriptor. It is readable when there is work.
func (w *Source) FD() int { return w.epoll }

// Pending reports, without a system call, whether there is an armed completion event or an event of
// another goroutine. It does not check the timer.
func (w *Source) Pending() bool { return w.raised() || w.channel.Pending() }

func (w *Source) raised() bool { return w.word.Load()&Raised != 0 }

// Raise sets Raised and wakes the sleeper. The caller must publish its event before.
func (w *Source) Raise() {
	if w.word.Or(Raised)&Raised == 0 {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		// It can only fail if the counter is at its maximum, which also wakes the sleeper.
		_, _ = unix.Write(w.event, one[:])
	}
}

// Lower clears Raised. The caller must read the events after.
func (w *Source) Lower() {
	if w.word.And(^uint32(Raised))&Raised != 0 {
		w.unread++
		w.read()
	}
}

// read reads the eventfd, because a readable descriptor would end every sleep. If a Raise has set
// its bit and not written yet (EAGAIN), the next Arm reads it.
func (w *Source) read() {
	if w.unread <= 0 {
		return
	}
	var count [8]byte
	if _, err := unix.Read(w.event, count[:]); err == nil {
		w.unread -= int64(binary.NativeEndian.Uint64(count[:]))
	}
}

// Armer requests an event at the next completion. It is a verbs.CQ or a queue that a transport
// drives.
type Armer interface {
	Arm(solicitedOnly bool) error
}

// Arm requests an event at the next completion of cq, and after d if d > 0. ErrBusy means that
// there may be work already.
func (w *Source) Arm(cq Armer, d time.Duration) error {
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

func (w *Source) setTimer(d time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(d), 0))}
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(w.timer, 0, &spec, nil))
}
