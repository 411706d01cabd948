package ucttest

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/uct"
)

var wakeChecks = []check{
	{
		name: "wake/receive",
		rule: "after Arm, EventFD becomes readable when a message arrives",
		need: uct.CapEventFD, any: uct.CapAM, run: checkWakeReceive,
	},
	{
		name: "wake/send",
		rule: "after Arm, EventFD becomes readable when an operation completes",
		need: uct.CapEventFD, any: uct.CapAMZcopy | uct.CapPutZcopy, run: checkWakeSend,
	},
	{
		name: "wake/busy",
		rule: "Arm returns ErrBusy if an event has already arrived, or EventFD becomes readable",
		need: uct.CapEventFD, any: uct.CapAM, run: checkWakeBusy,
	},
	{
		name: "wake/race",
		rule: "Arm, ErrBusy or wait, Progress: no event is lost between them",
		need: uct.CapEventFD, any: uct.CapAM, run: checkWakeRace,
	},
	{
		name: "wake/pending",
		rule: "EventPending is true from the arrival of an armed event until Progress and Arm have consumed it",
		need: uct.CapEventFD, any: uct.CapAM, run: checkEventPending,
	},
	{
		name: "wake/armed",
		rule: "while StillArmed after a post, EventFD becomes readable when a message arrives or an operation completes",
		need: uct.CapEventFD, any: uct.CapAM, run: checkStillArmed,
	},
	{
		name: "wake/watch",
		rule: "while a watch is idle, Progress has no completion and no arrival to handle",
		any:  uct.CapAM, run: checkWatch,
	},
}

// readable waits until fd is readable; timeout in milliseconds.
func readable(fd, timeout int) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, timeout)
		if err != unix.EINTR {
			return n == 1 && fds[0].Revents&unix.POLLIN != 0
		}
	}
}

// wakes reports whether EventFD of s becomes readable while only other progresses, which may have to retransmit.
func (p *pair) wakes(s, other *side) bool {
	fd := s.Iface.Ext().Wake.EventFD()
	for range p.h.eventTimeout() {
		for range idleRounds {
			other.Iface.Progress()
		}
		if readable(fd, 1) {
			return true
		}
	}
	return false
}

// arm arms s. While Arm returns ErrBusy, it progresses s.
func (p *pair) arm(t checkT, s *side, ev uct.Events) {
	t.Helper()
	w := s.Iface.Ext().Wake
	p.until(t, "Arm is always busy", func() bool {
		err := w.Arm(ev)
		if err != nil && err != uct.ErrBusy {
			require.NoError(t, err, "arm")
		}
		return err == nil
	})
}

// pushFrom repeats a post while it returns ErrNoResource, and progresses only s.
func (p *pair) pushFrom(t checkT, s *side, post func() error) {
	t.Helper()
	err := post()
	for w := p.h.patience(1); err == uct.ErrNoResource && !w.spent(s.Iface.Progress()); {
		w.yield()
		err = post()
	}
	require.NoError(t, err)
}

func checkWakeReceive(t checkT, p *pair) {
	in := newInbox(t, p.B, 3)
	for i := range 50 {
		p.flush(t, p.AB)
		p.settle()
		p.arm(t, p.B, uct.EventRecv)
		require.Empty(t, in.msgs, "messages that nobody sent")
		p.pushFrom(t, p.A, func() error { return p.post(p.AB, i) })
		require.True(t, p.wakes(p.B, p.A), "round %d: a message came and the descriptor is not readable", i)
		p.expect(t, in, "woken", pattern(i, 64))
	}
}

func checkWakeBusy(t checkT, p *pair) {
	in := newInbox(t, p.B, 3)
	w := p.B.Iface.Ext().Wake
	for i := range 20 {
		p.settle()
		p.pushFrom(t, p.A, func() error { return p.post(p.AB, i) })
		p.A.Iface.Progress()
		p.A.Iface.Progress()
		err := w.Arm(uct.EventRecv)
		if err != uct.ErrBusy {
			require.NoError(t, err)
			require.True(t, p.wakes(p.B, p.A), "round %d: neither busy nor an event", i)
		}
		p.expect(t, in, fmt.Sprintf("round %d", i), pattern(i, 64))
	}
}

// checkWakeRace repeats Arm, wait and Progress of B while A sends from another goroutine, so that messages arrive at
// each point of the protocol.
func checkWakeRace(t checkT, p *pair) {
	if p.h.OneGoroutine {
		t.Skipf("the ifaces share a goroutine")
	}
	count := p.h.rounds(300)
	seen := 0
	var taken atomic.Int64
	require.NoError(t, p.B.Iface.SetAMHandler(3, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		seen++
		return false
	})))
	p.settle()
	s := &sender{l: p.AB, h: p.h}
	failed := make(chan error, 1)
	go func() { failed <- s.trickle(p, count, &taken) }()
	w := p.B.Iface.Ext().Wake
	for seen < count {
		if p.B.Iface.Progress() > 0 {
			taken.Store(int64(seen))
			continue
		}
		err := w.Arm(uct.EventRecv)
		if err == uct.ErrBusy {
			continue
		}
		require.NoError(t, err)
		if !readable(w.EventFD(), p.h.eventTimeout()) {
			t.Errorf("a wake-up was lost after %d messages", seen)
			break
		}
	}
	taken.Store(int64(count)) // lets the sender finish, also after a failure
	assert.NoError(t, p.progressUntil(failed))
	assert.Equal(t, count, seen)
}

// progressUntil progresses B until it receives an error (or nil) from the channel, which it returns.
func (p *pair) progressUntil(ended <-chan error) error {
	for {
		select {
		case err := <-ended:
			return err
		default:
			if p.B.Iface.Progress() == 0 {
				runtime.Gosched()
			}
		}
	}
}

// trickle sends count messages. It sends each after B has received the previous one and a varying number of rounds
// has passed.
func (s *sender) trickle(p *pair, count int, taken *atomic.Int64) error {
	for i := range count {
		var err error
		s.drive(func() bool {
			err = p.post(s.l, i)
			return err != uct.ErrNoResource
		})
		if err != nil {
			return err
		}
		s.drive(func() bool { return taken.Load() > int64(i) })
		for range i % 7 {
			s.l.From.Iface.Progress()
		}
	}
	if !s.flush() {
		return uct.ErrBusy
	}
	return nil
}

func checkEventPending(t checkT, p *pair) {
	e := p.B.Iface.Ext().Pending
	if e == nil {
		t.Skipf("the iface is no EventPender")
	}
	in := newInbox(t, p.B, 3)
	for i := range 20 {
		p.flush(t, p.AB)
		p.until(t, "an event is always pending on an idle iface", func() bool {
			p.arm(t, p.B, uct.EventRecv)
			return !e.EventPending()
		})
		p.pushFrom(t, p.A, func() error { return p.post(p.AB, i) })
		for w := p.h.patience(1); !e.EventPending() && !w.spent(p.A.Iface.Progress()); {
			w.yield() // the device's own goroutine may have to raise the event
		}
		require.True(t, e.EventPending(), "round %d: a message came and no event is pending", i)
		assert.True(t, e.EventPending(), "it stays so")
		p.expect(t, in, fmt.Sprintf("round %d", i), pattern(i, 64))
	}
}

// checkWakeSend waits for the event of a zero-copy operation while only the target progresses.
func checkWakeSend(t checkT, p *pair) {
	var newPost func(*uct.Completion) (bool, error)
	buf := p.A.staged.take(4096)
	a := p.A.Iface.Attr()
	if a.Caps.Has(uct.CapPutZcopy) {
		iov := []uct.IOV{{Buf: buf[:max(a.Put.MinZcopy, min(len(buf), a.Put.MaxZcopy))], Mem: p.A.staged.mem}}
		newPost = func(c *uct.Completion) (bool, error) { return p.AB.Put.PutZcopy(iov, p.AB.Raddr, p.AB.Key, c) }
	} else {
		newInbox(t, p.B, 3)
		iov := []uct.IOV{{Buf: buf[:max(a.AM.MinZcopy, min(64, a.AM.MaxZcopy))], Mem: p.A.staged.mem}}
		newPost = func(c *uct.Completion) (bool, error) { return p.AB.AM.AMZcopy(3, nil, iov, c) }
	}
	for range 30 {
		done := false
		c := &uct.Completion{Count: 1, Func: func(*uct.Completion) { done = true }}
		require.NoError(t, p.push(t, func() error {
			pending, err := newPost(c)
			done = err == nil && !pending
			return err
		}))
		for !done {
			p.sleepUnless(t, p.A, p.B)
		}
	}
	p.A.staged.giveBack(buf)
}

// sleepUnless arms s and waits for its event while other progresses. If Arm returns ErrBusy, it progresses s.
func (p *pair) sleepUnless(t checkT, s, other *side) {
	t.Helper()
	w := s.Iface.Ext().Wake
	if err := w.Arm(uct.EventSendComp | uct.EventRecv); err != uct.ErrBusy {
		require.NoError(t, err, "arm")
		require.True(t, p.wakes(s, other), "an operation is under way and no event came")
	}
	s.Iface.Progress()
}

// checkStillArmed posts on A after Arm and then waits for the event of B's reply, and of resources for a pending request.
func checkStillArmed(t checkT, p *pair) {
	if p.A.Iface.Ext().Armed == nil {
		t.Skipf("the iface is no ArmChecker")
	}
	out, in := newInbox(t, p.B, 3), newInbox(t, p.A, 3)
	for i := range 50 {
		p.flush(t, p.AB)
		p.settle()
		p.arm(t, p.A, uct.EventSendComp|uct.EventRecv)
		if err := p.post(p.AB, i); err == uct.ErrNoResource {
			continue
		} else {
			require.NoError(t, err)
		}
		p.settleArmed(t, p.A)
		for w := p.h.patience(1); len(out.msgs) == 0; {
			require.False(t, w.spent(p.B.Iface.Progress()), "round %d: a message of an iface that is still armed does not arrive", i)
			w.yield()
			if readable(p.A.Iface.Ext().Wake.EventFD(), 0) { // another event, for example of a connection
				p.A.Iface.Progress()
				p.arm(t, p.A, uct.EventSendComp|uct.EventRecv)
			}
		}
		p.pushFrom(t, p.B, func() error { return p.post(p.BA, i) })
		require.True(t, p.wakes(p.A, p.B), "round %d: an answer came and the descriptor is not readable", i)
		p.expect(t, in, "woken", pattern(i, 64))
		out.msgs = nil
	}
	p.checkArmedPending(t)
}

// checkArmedPending waits, after Arm, for the event of resources for a pending request of A.
func (p *pair) checkArmedPending(t checkT) {
	if !p.A.Iface.Attr().Caps.Has(uct.CapPending) {
		return
	}
	p.flush(t, p.AB)
	p.settle()
	p.arm(t, p.A, uct.EventSendComp|uct.EventRecv)
	p.exhaust(t, p.AB, 0)
	waits := true
	r := uct.PendingReq{Func: func(*uct.PendingReq) error { waits = false; return nil }}
	if p.AB.EP.AddPending(&r) != nil {
		return // the EP has resources again
	}
	for waits {
		a := p.A.Iface.Ext()
		if a.Push != nil {
			a.Push.Push()
		}
		if a.Armed.StillArmed() {
			require.True(t, p.wakes(p.A, p.B), "a request waits for room and no event came")
			p.arm(t, p.A, uct.EventSendComp|uct.EventRecv)
		}
		p.round()
	}
}

// settleArmed progresses and arms s until StillArmed returns true after a post.
func (p *pair) settleArmed(t checkT, s *side) {
	t.Helper()
	x := s.Iface.Ext()
	still := func() bool {
		if x.Push != nil {
			x.Push.Push()
		}
		return x.Armed.StillArmed()
	}
	for w := p.h.patience(1); !still(); {
		require.False(t, w.spent(s.Iface.Progress()), "an idle iface that was armed is not StillArmed")
		w.yield()
	}
}

// checkWatch checks the watch of B while nothing is in flight, and after a message.
func checkWatch(t checkT, p *pair) {
	const rounds = 50
	wb := p.B.Iface.Ext().Watch
	if wb == nil || wb.Watch() == nil {
		t.Skipf("the iface has no watch")
	}
	watch := wb.Watch()
	in := newInbox(t, p.B, 3)
	for i := range rounds {
		p.flush(t, p.AB)
		p.settle()
		for n := 0; n < idleRounds && !watch.Idle(); n++ {
			p.round()
		}
		if !watch.Idle() {
			t.Skipf("the watch does not become idle")
		}
		p.pushFrom(t, p.A, func() error { return p.post(p.AB, i) })
		for w := p.h.patience(1); watch.Idle() && !w.spent(p.A.Iface.Progress()); {
			w.yield()
		}
		require.False(t, watch.Idle(), "a message came and the watch stays idle")
		p.expect(t, in, fmt.Sprintf("round %d", i), pattern(i, 64))
		assert.Same(t, watch, wb.Watch(), "the watch changed")
	}
}
