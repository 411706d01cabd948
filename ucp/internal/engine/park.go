package engine

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// parkLimit bounds one sleep. Transports have their timers in their descriptors; it
// is for one that has not, and costs nothing that shows.
const parkLimit = time.Second

// parker lets the owner of a worker sleep until a transport has an event or Signal
// is called. It is made by the first sleep.
type parker struct {
	file   *os.File // the epoll descriptor, known to the runtime's poller
	conn   syscall.RawConn
	signal int // an eventfd
	mu     sync.Mutex
	closed bool
	leave  func() bool // heeds the context no longer, and reports false if that has ended; under mu
	heeds  uint        // contexts that were heeded; under mu

	// Of the goroutine that sleeps. Most sleeps have the context of the one before: what costs as much as
	// the sleep itself is done again only if it differs.
	ready [4]unix.EpollEvent // what wait has found; Fd is the index of the descriptor
	found int                // how many of these
	look  func(fd uintptr) bool
	limit time.Time       // the deadline of file; zero if that is another one
	ends  <-chan struct{} // Done of the context that ends sleeps
}

// notAnIface stands for the index of the descriptor that wake makes readable.
const notAnIface = -1

// newParker makes a parker over the descriptors; noFD stands for none.
func newParker(fds []int) (_ *parker, err error) {
	signal, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, ucs.Join(os.NewSyscallError("epoll_create1", err), unix.Close(signal))
	}
	_ = unix.SetNonblock(epfd, true) // os.NewFile gives only such a descriptor to the runtime's poller; cannot fail
	p := &parker{file: os.NewFile(uintptr(epfd), "epoll"), signal: signal}
	p.look = p.lookNow
	defer func() {
		if err != nil {
			err = ucs.Join(err, p.close())
		}
	}()
	for i, fd := range slices.Concat([]int{signal}, fds) {
		if fd == noFD {
			continue
		}
		if err = watch(epfd, fd, notAnIface+int32(i)); err != nil { // the signal is the one before the ifaces
			return nil, err
		}
	}
	p.conn, err = p.file.SyscallConn()
	return p, err
}

// noFD is in the place of the descriptor of an iface that has none.
const noFD = -1

// watch has epfd report by the index that fd is readable.
func watch(epfd, fd int, index int32) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: index}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, fd, &ev))
}

// watch adds fd to the descriptors that end a sleep when they are readable. A sleep in progress is included.
func (p *parker) watch(fd int, index int32) (err error) {
	if e := p.conn.Control(func(epfd uintptr) { err = watch(int(epfd), fd, index) }); e != nil {
		return e
	}
	return err
}

// wait sleeps until a descriptor is readable, ctx ends or atMost has passed, half of atMost at least. It returns
// the descriptors that it found readable, until the next call.
func (p *parker) wait(ctx context.Context, atMost time.Duration) ([]unix.EpollEvent, error) {
	p.found = 0
	p.heed(ctx)
	if err := p.setLimit(ctx, atMost); err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // else expire is still to come
		return nil, nil
	}
	err := p.conn.Read(p.look)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.limit, err = time.Time{}, nil // expire may have set the deadline
	}
	for i := range p.ready[:p.found] {
		if p.ready[i].Fd == notAnIface {
			p.drain()
		}
	}
	return p.ready[:p.found], err
}

// lookNow finds the descriptors that are readable, and reports whether the sleep is over.
func (p *parker) lookNow(epfd uintptr) bool {
	n, err := unix.EpollWait(int(epfd), p.ready[:], 0)
	p.found = max(n, 0)
	return n > 0 || err != nil && err != unix.EINTR
}

// setLimit sets the deadline of the file for a sleep.
func (p *parker) setLimit(ctx context.Context, atMost time.Duration) error {
	now := time.Now()
	limit := now.Add(atMost)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit = d
		if p.limit.Equal(limit) {
			return nil
		}
	} else if left := p.limit.Sub(now); left > atMost/2 && left <= atMost {
		return nil
	}
	p.limit = limit
	return p.file.SetReadDeadline(limit)
}

// heed has the end of ctx end sleeps, and that of the context before no longer.
func (p *parker) heed(ctx context.Context) {
	ends := ctx.Done()
	if ends == p.ends {
		return
	}
	p.ends = ends
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leave != nil {
		if !p.leave() {
			p.limit = time.Time{} // expire has set the deadline, or sets it no more
		}
		p.leave = nil
	}
	p.heeds++
	if ends != nil && !p.closed {
		number := p.heeds
		p.leave = context.AfterFunc(ctx, func() { p.expire(number) })
	}
}

// expire ends the sleep, or the next one, if the context of that number is still the one that ends it.
func (p *parker) expire(number uint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number == p.heeds {
		_ = p.file.SetReadDeadline(time.Now()) // fails only when closed
	}
}

// drain takes back signals.
func (p *parker) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed { // else the number may be another descriptor's
		var b [8]byte
		_, _ = unix.Read(p.signal, b[:]) // EAGAIN if there was none
	}
}

// wake ends a sleep, or the next one at once.
func (p *parker) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		one := [8]byte{1}
		_, _ = unix.Write(p.signal, one[:]) // EAGAIN if it is raised to the limit: fine
	}
}

func (p *parker) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.leave != nil {
		p.leave()
	}
	return ucs.Join(p.file.Close(), unix.Close(p.signal))
}

// sleep parks until there may be work. It returns at once if some iface that is
// polled cannot tell of events, or has some.
func (e *Engine) sleep(ctx context.Context, done func() bool) error {
	if ready, err := e.ReadyToSleep(done); !ready || err != nil {
		return err
	}
	return e.Park(ctx)
}

// ReadyToSleep asks the transports for events. It reports whether there is nothing to do
// until one comes, and done is not true. It does not call done after done has returned true.
func (e *Engine) ReadyToSleep(done func() bool) (bool, error) {
	for _, i := range e.ifaces {
		if i.polled && i.waker == nil {
			return false, nil
		}
	}
	if e.park == nil {
		if err := e.makeParker(); err != nil {
			return false, err
		}
	}
	for range 2 { // what done has started, and left to Progress, is posted by the second
		if e.Progress() > 0 || done() {
			return false, nil
		}
	}
	if armed, err := e.armAll(); !armed || err != nil {
		return false, err
	}
	// No Progress from here on: it would use up events that were asked for, and start what needs
	// others. Nor done, which may start something too.
	if e.slow || e.posted.Load() || e.Alarm.Due() || e.Turn.closing() {
		return false, nil
	}
	e.Sleeps.Inc()
	e.Ticks = due // what wakes may be of an iface that is not polled each time
	return true, nil
}

// armAll asks the transports for events. It reports false if one has something to do already.
func (e *Engine) armAll() (bool, error) {
	e.asked = e.ifaces
	for _, i := range e.ifaces {
		i.unread = !i.polled && i.users == 0 && !i.canReceive()
		if i.waker == nil || i.unread {
			continue
		}
		switch err := i.waker.Arm(uct.EventRecv | uct.EventSendComp); {
		case err == uct.ErrBusy:
			if !i.polled { // what came before it was armed raises no flag
				i.activate()
			}
			return false, nil
		case err != nil:
			return false, err
		}
	}
	return true, nil
}

// Park parks until an event that was asked for, Signal, or the end of ctx. Callbacks do
// not run meanwhile. Other goroutines may make progress meanwhile, but not park.
func (e *Engine) Park(ctx context.Context) error {
	waiting.parked.Add(1)
	ready, err := e.park.wait(ctx, e.ParkLimit)
	waiting.parked.Add(-1)
	for i := range ready {
		if k := ready[i].Fd; k != notAnIface && int(k) < len(e.asked) && e.asked[k].unread {
			e.asked[k].woke.Store(true)
			e.woke.Store(true)
			e.posted.Store(true)
		}
	}
	return err
}

// pollWoken has Progress poll the ifaces whose descriptors have ended a sleep although nothing is
// connected over them and nothing was asked for: a fault of a connection that is closed, the
// completion of its last operation, its timer. Descriptors are level-triggered: what is not read ends
// every sleep.
func (e *Engine) pollWoken() {
	if !e.woke.Swap(false) {
		return
	}
	for _, i := range e.ifaces {
		if i.woke.Swap(false) && !i.polled {
			i.poll()
		}
	}
}

// Unsettled reports whether there may be something to do, or to wait for, that a sleeper
// has not asked for.
func (e *Engine) Unsettled() bool { return e.slow || !e.Quiet() }

func (e *Engine) makeParker() error {
	fds := make([]int, len(e.ifaces))
	for k, i := range e.ifaces {
		fds[k] = noFD
		if i.waker != nil {
			fds[k] = i.waker.EventFD()
		}
	}
	p, err := newParker(fds)
	if err != nil {
		return err
	}
	e.parkMu.Lock()
	e.park = p
	e.parkMu.Unlock()
	return nil
}

// Signal wakes the goroutine that waits in a blocking call of the worker, which
// then looks for progress. Any goroutine.
func (e *Engine) Signal() {
	e.parkMu.Lock()
	p := e.park
	e.parkMu.Unlock()
	if p != nil {
		p.wake()
	}
}
