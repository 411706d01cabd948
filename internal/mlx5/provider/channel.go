package provider

import (
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// channel is a completion channel of either type.
type channel interface {
	verbs.CompChannelProvider
	// describe adds the channel to the parameters of a CQ.
	describe(c *compQueue, p *prm.CQParams)
	// watch adds a CQ that the hardware has made; forget removes a CQ that it has
	// destroyed, and drops its events.
	watch(c *compQueue)
	forget(c *compQueue)
}

// compChannel queues the completion events of its CQs. Its eventfd is readable
// while the queue is not empty.
type compChannel struct {
	fd      int
	pending atomic.Int32 // events in the queue

	mu    sync.Mutex
	queue []*compQueue
}

// CreateCompChannel implements verbs.Provider.
func (p *provider) CreateCompChannel() (verbs.CompChannelProvider, error) {
	if hw, ok := p.hw.(prm.EventHardware); ok {
		return newKernelChannel(hw)
	}
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, opError("create completion channel", os.NewSyscallError("eventfd", err))
	}
	return &compChannel{fd: fd}, nil
}

// eventSink is the CQSink of a CQ.
type eventSink struct {
	ch *compChannel
	cq *compQueue
}

// CompletionEvent implements prm.CQSink.
func (s eventSink) CompletionEvent() { s.ch.push(s.cq) }

func (ch *compChannel) describe(c *compQueue, p *prm.CQParams) { p.Sink = eventSink{ch, c} }

func (ch *compChannel) watch(*compQueue) {} // the device calls the sink

// FD implements verbs.CompChannelProvider.
func (ch *compChannel) FD() int { return ch.fd }

// Pending implements verbs.CompChannelProvider.
func (ch *compChannel) Pending() bool { return ch.pending.Load() != 0 }

// push appends an event. Any goroutine, also one that executes a doorbell.
func (ch *compChannel) push(c *compQueue) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.queue = append(ch.queue, c)
	if ch.pending.Add(1) == 1 {
		ch.signal(true)
	}
}

// signal makes the eventfd readable or not readable. It cannot block or overflow: the
// counter is 0 or 1. mu is held.
func (ch *compChannel) signal(on bool) {
	one := [8]byte{7: 1}
	for {
		var err error
		if on {
			_, err = unix.Write(ch.fd, one[:])
		} else {
			_, err = unix.Read(ch.fd, one[:])
		}
		if err != unix.EINTR {
			return
		}
	}
}

// TryGet implements verbs.CompChannelProvider.
func (ch *compChannel) TryGet() *verbs.CQ {
	if ch.pending.Load() == 0 {
		return nil
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(ch.queue) == 0 {
		return nil
	}
	c := ch.queue[0]
	n := copy(ch.queue, ch.queue[1:])
	ch.shrink(n)
	c.armSN.Add(1)
	return c.v
}

// shrink cuts the queue to n events.
func (ch *compChannel) shrink(n int) {
	clear(ch.queue[n:])
	ch.queue = ch.queue[:n]
	ch.pending.Store(int32(n))
	if n == 0 {
		ch.signal(false)
	}
}

// forget drops the events of a CQ that is destroyed.
func (ch *compChannel) forget(c *compQueue) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	n := 0
	for _, q := range ch.queue {
		if q != c {
			ch.queue[n] = q
			n++
		}
	}
	if n != len(ch.queue) {
		ch.shrink(n)
	}
}

// Close implements verbs.CompChannelProvider.
func (ch *compChannel) Close() error {
	return os.NewSyscallError("close", unix.Close(ch.fd))
}
