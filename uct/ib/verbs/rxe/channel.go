package rxe

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// compChannel delivers completion events: those of the kernel, and those that Arm raises for completions that were
// in the queue before. FD is an epoll descriptor of the kernel's descriptor and an eventfd.
type compChannel struct {
	prov         *provider
	kernel       *uverbs.Channel
	epoll, event int
	raised       atomic.Int32 // length of queue

	mu    sync.Mutex
	queue []*compQueue
	cqs   atomic.Pointer[[]*compQueue] // replaced under mu
}

// CreateCompChannel implements verbs.Provider.
func (p *provider) CreateCompChannel() (_ verbs.CompChannelProvider, err error) {
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			_ = undo.Run()
		}
	}()
	ch := &compChannel{prov: p}
	ch.cqs.Store(new([]*compQueue))
	if ch.kernel, err = p.ctx.NewChannel(); err != nil {
		return nil, err
	}
	undo.Add(ch.kernel.Close)
	if ch.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, opError("create completion channel", os.NewSyscallError("epoll_create1", err))
	}
	undo.Add(func() error { return unix.Close(ch.epoll) })
	if ch.event, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return nil, opError("create completion channel", os.NewSyscallError("eventfd2", err))
	}
	undo.Add(func() error { return unix.Close(ch.event) })
	for _, fd := range []int{ch.kernel.FD(), ch.event} {
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
		if err = unix.EpollCtl(ch.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
			return nil, opError("create completion channel", os.NewSyscallError("epoll_ctl", err))
		}
	}
	return ch, nil
}

// FD implements verbs.CompChannelProvider.
func (ch *compChannel) FD() int { return ch.epoll }

// Pending implements verbs.CompChannelProvider. If a CQ is armed for all completions, an entry in its ring means that the
// kernel raises an event. If it is armed for solicited completions, the ring does not show whether an entry is solicited,
// so Pending polls the kernel's descriptor.
func (ch *compChannel) Pending() bool {
	if ch.raised.Load() != 0 {
		return true
	}
	for _, c := range *ch.cqs.Load() {
		switch c.armed.Load() {
		case armedAny:
			if !c.isEmpty() {
				return true
			}
		case armedSolicited:
			return ch.kernel.Readable()
		}
	}
	return false
}

// raise queues an event of c for a completion that was in the ring before Arm, for which the kernel raises none.
func (ch *compChannel) raise(c *compQueue) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if slices.Contains(ch.queue, c) {
		return
	}
	ch.queue = append(ch.queue, c)
	if ch.raised.Add(1) == 1 {
		one := [8]byte{7: 1}
		_, _ = unix.Write(ch.event, one[:]) // cannot fail: the counter is 0 and does not overflow
	}
}

// TryGet implements verbs.CompChannelProvider. The kernel raises an event shortly after it writes the completion. TryGet
// returns the CQ as soon as the completion is in the ring, and drops the event of the kernel when it arrives.
func (ch *compChannel) TryGet() *verbs.CQ {
	if ch.raised.Load() != 0 {
		if v := ch.popRaised(); v != nil {
			return v
		}
	}
	for {
		handle, ok := ch.kernel.TryRead()
		if !ok {
			break
		}
		if c, is := ch.prov.objects.get(handle).(*compQueue); is && c.armed.Swap(disarmed) != disarmed {
			return c.v
		}
	}
	for _, c := range *ch.cqs.Load() {
		if c.armed.Load() == armedAny && !c.isEmpty() && c.armed.CompareAndSwap(armedAny, disarmed) {
			return c.v
		}
	}
	return nil
}

func (ch *compChannel) popRaised() *verbs.CQ {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(ch.queue) == 0 {
		return nil
	}
	c := ch.queue[0]
	ch.cut(slices.Delete(ch.queue, 0, 1))
	return c.v
}

// cut replaces the queue after an event was removed, and clears the eventfd if the queue is empty. The caller holds mu.
func (ch *compChannel) cut(queue []*compQueue) {
	ch.queue = queue
	ch.raised.Store(int32(len(queue)))
	if len(queue) == 0 {
		var count [8]byte
		_, _ = unix.Read(ch.event, count[:])
	}
}

// add adds a CQ to the channel.
func (ch *compChannel) add(c *compQueue) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	list := append(slices.Clone(*ch.cqs.Load()), c)
	ch.cqs.Store(&list)
}

// remove removes a CQ and its queued events. The kernel drops its own events of the CQ when the CQ is destroyed.
func (ch *compChannel) remove(c *compQueue) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*ch.cqs.Load()), func(q *compQueue) bool { return q == c })
	ch.cqs.Store(&list)
	if i := slices.Index(ch.queue, c); i >= 0 {
		ch.cut(slices.Delete(ch.queue, i, i+1))
	}
}

// Close implements verbs.CompChannelProvider.
func (ch *compChannel) Close() error {
	return errors.Join(unix.Close(ch.epoll), unix.Close(ch.event), ch.kernel.Close())
}
