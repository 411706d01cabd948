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

	"github.com/gucx/gucx/internal/epollnow"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// parkLimit limits one sleep, for transports whose timers do not make their descriptors
// readable. Its cost is not measurable.
const parkLimit = time.Second

// parker lets the owner of a worker sleep until a transport has an event or Signal
// is called. The first sleep creates it.
type parker struct {
	file    *os.File // the epoll descriptor, known to the runtime's poller
	epfd    int      // its number: file.Fd would make it blocking
	conn    syscall.RawConn
	signal  int // an eventfd
	mu      sync.Mutex
	closed  bool
	unwatch func() bool // stops watching the context; false if the context is done already; under mu
	watched uint        // contexts that were watched; under mu

	// Used by the goroutine that sleeps only. To watch a context costs as much as the sleep itself, so the parker
	// continues to watch a context until a sleep has another one.
	ready [4]unix.EpollEvent // readable descriptors; Fd is the index of the descriptor
	found int                // number of valid entries of ready
	find  func(fd uintptr) bool
	limit time.Time       // deadline of file; zero if it is not known
	ends  <-chan struct{} // Done of the watched context
}

// notAnIface is the index of the descriptor that wake makes readable.
const notAnIface = -1

// newParker returns a parker for the descriptors; noFD means that an iface has none.
func newParker(fds []int) (_ *parker, err error) {
	signal, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, ucs.Join(os.NewSyscallError("epoll_create1", err), unix.Close(signal))
	}
	_ = unix.SetNonblock(epfd, true) // os.NewFile registers only nonblocking descriptors with the runtime's poller; cannot fail
	p := &parker{file: os.NewFile(uintptr(epfd), "epoll"), epfd: epfd, signal: signal}
	p.find = p.findReady
	defer func() {
		if err != nil {
			err = ucs.Join(err, p.close())
		}
	}()
	for i, fd := range slices.Concat([]int{signal}, fds) {
		if fd == noFD {
			continue
		}
		if err = watch(epfd, fd, notAnIface+int32(i)); err != nil { // the signal comes before the ifaces
			return nil, err
		}
	}
	p.conn, err = p.file.SyscallConn()
	return p, err
}

// noFD replaces the descriptor of an iface that has none.
const noFD = -1

// watch registers fd with epfd under the index.
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

// wait sleeps until a descriptor is readable, ctx is done, or a time between atMost/2 and atMost has passed. It
// returns the readable descriptors; the slice is valid until the next call.
func (p *parker) wait(ctx context.Context, atMost time.Duration) ([]unix.EpollEvent, error) {
	p.found = 0
	p.watchContext(ctx)
	if err := p.setLimit(ctx, atMost); err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // otherwise expire will set the deadline
		return nil, nil
	}
	err := p.conn.Read(p.find)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.limit, err = time.Time{}, nil // expire may have set the deadline
	}
	p.drainFound()
	return p.ready[:p.found], err
}

// poll returns the readable descriptors without waiting, and clears signals. The slice is valid until the next
// call.
func (p *parker) poll() []unix.EpollEvent {
	p.findReady(uintptr(p.epfd))
	p.drainFound()
	return p.ready[:p.found]
}

// drainFound clears signals if they are among the readable descriptors.
func (p *parker) drainFound() {
	for i := range p.ready[:p.found] {
		if p.ready[i].Fd == notAnIface {
			p.drain()
		}
	}
}

// findReady finds the readable descriptors, and reports whether the sleep is over.
func (p *parker) findReady(epfd uintptr) bool {
	n, err := epollnow.Poll(int(epfd), p.ready[:])
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

// watchContext watches ctx, whose end then ends sleeps, instead of the previous context.
func (p *parker) watchContext(ctx context.Context) {
	ends := ctx.Done()
	if ends == p.ends {
		return
	}
	p.ends = ends
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unwatch != nil {
		if !p.unwatch() {
			p.limit = time.Time{} // expire may have set the deadline
		}
		p.unwatch = nil
	}
	p.watched++
	if ends != nil && !p.closed {
		number := p.watched
		p.unwatch = context.AfterFunc(ctx, func() { p.expire(number) })
	}
}

// expire ends the current or next sleep, if the context with the number is still watched.
func (p *parker) expire(number uint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number == p.watched {
		_ = p.file.SetReadDeadline(time.Now()) // fails only when closed
	}
}

// drain clears signals.
func (p *parker) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed { // otherwise the number may belong to another descriptor
		var b [8]byte
		_, _ = unix.Read(p.signal, b[:]) // EAGAIN if there was none
	}
}

// wake ends the current sleep, or the next one.
func (p *parker) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		one := [8]byte{1}
		_, _ = unix.Write(p.signal, one[:]) // EAGAIN if the counter is at its limit, which also wakes
	}
}

func (p *parker) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.unwatch != nil {
		p.unwatch()
	}
	return ucs.Join(p.file.Close(), unix.Close(p.signal))
}

// sleep parks until there may be work. It returns at once if a polled iface
// has no events to arm, or has an event.
func (e *Engine) sleep(ctx context.Context, done func() bool) error {
	if ready, err := e.ReadyToSleep(done); !ready || err != nil {
		return err
	}
	return e.Park(ctx)
}

// ReadyToSleep arms the transports. It reports whether there is no work until the next event,
// and done has returned false. It does not call done after done has returned true. If it reports true, the caller must call
// Park.
func (e *Engine) ReadyToSleep(done func() bool) (bool, error) {
	e.sleeping.Store(true) // before done, which reads what callers of Signal have stored
	ready, err := e.prepareSleep(done)
	if ready {
		e.Sleeps.Inc()
	} else {
		e.sleeping.Store(e.exposed)
	}
	return ready, err
}

// prepareSleep is ReadyToSleep without the state of Signal.
func (e *Engine) prepareSleep(done func() bool) (bool, error) {
	for _, i := range e.ifaces {
		if i.polled && i.waker == nil {
			return false, nil
		}
	}
	if err := e.makeParker(); err != nil {
		return false, err
	}
	for range 2 { // the second round posts operations that done has started and deferred
		if e.Progress() > 0 || done() {
			return false, nil
		}
	}
	return e.canSleep()
}

// canSleep arms the transports and reports whether there is no work until the next event.
func (e *Engine) canSleep() (bool, error) {
	if armed, err := e.armAll(); !armed || err != nil {
		return false, err
	}
	// No Progress after arming: it would consume armed events, and start operations that need
	// other events. No done either, which may start operations too.
	if e.slow || e.posted.Load() || e.Alarm.Due() || e.Turn.closing() {
		return false, nil
	}
	e.Ticks = due // the event may be of an iface that Progress does not always poll
	return true, nil
}

// armAll arms the transports. It reports false if one has work already.
func (e *Engine) armAll() (bool, error) {
	e.armed = e.ifaces
	for _, i := range e.ifaces {
		i.armed = false
		i.unread = !i.polled && i.users == 0 && !i.canReceive()
		if i.waker == nil || i.unread {
			continue
		}
		switch err := i.waker.Arm(uct.EventRecv | uct.EventSendComp); {
		case err == uct.ErrBusy:
			if !i.polled { // a message that arrived before arming sets no flag
				i.poll()
			}
			return false, nil
		case err != nil:
			return false, err
		}
		i.armed = true
	}
	return true, nil
}

// Park parks until an armed event, Signal, or the end of ctx. It runs no callbacks.
// Other goroutines may make progress during Park, but must not park.
func (e *Engine) Park(ctx context.Context) error {
	waiting.parked.Add(1)
	ready, err := e.park.wait(ctx, e.ParkLimit)
	waiting.parked.Add(-1)
	e.sleeping.Store(e.exposed)
	e.markWoken(ready)
	return err
}

// markWoken makes a later Progress poll the ifaces with readable descriptors that were not armed. It reports whether there
// are any, or signals.
func (e *Engine) markWoken(ready []unix.EpollEvent) (any bool) {
	for i := range ready {
		k := ready[i].Fd
		if k == notAnIface {
			any = true
		} else if int(k) < len(e.armed) && e.armed[k].unread {
			e.armed[k].unread = false // Progress will poll the iface, and polled ifaces are armed
			e.armed[k].woke.Store(true)
			e.woke.Store(true)
			e.posted.Store(true)
			any = true
		}
	}
	return any
}

// pollWoken makes Progress poll the ifaces whose descriptors have ended a sleep although they have no
// endpoint and were not armed: because of an error on a closed connection, the
// completion of its last operation, or its timer. Descriptors are level-triggered: an unread one ends
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

// StaysAsleep reports whether the goroutine in Park can stay there after other goroutines have used the worker: there is no work
// until an event that ReadyToSleep has armed. It sends joined messages.
func (e *Engine) StaysAsleep() bool {
	if e.slow || e.stopped {
		return false
	}
	e.Push()
	for _, i := range e.ifaces {
		if (i.polled || i.users > 0) && !i.stillArmed() {
			return false
		}
	}
	return true
}

// makeParker creates the parker unless there is one.
func (e *Engine) makeParker() error {
	if e.park != nil {
		return nil
	}
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
// then makes progress and calls its done. Any goroutine may call it. It makes a system call only if the goroutine sleeps or is
// about to, or if the owner waits on EventFD.
func (e *Engine) Signal() {
	if !e.sleeping.Load() { // pairs with the store in ReadyToSleep, after which done is called
		return
	}
	e.parkMu.Lock()
	p := e.park
	e.parkMu.Unlock()
	if p != nil {
		p.wake()
	}
}
