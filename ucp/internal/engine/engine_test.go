package engine

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// busyOwner counts the calls of an engine.
type busyOwner struct {
	todo, works int
	alarms      []time.Duration
}

func (o *busyOwner) Work() (n int) {
	o.works++
	n, o.todo = o.todo, 0
	return n
}

func (o *busyOwner) Alarm(now time.Duration) { o.alarms = append(o.alarms, now) }

// fake is a transport that a test controls.
type fake struct {
	uct.Iface
	attr    uct.IfaceAttr
	ext     uct.IfaceExt
	event   int // descriptor that becomes readable on an event
	pending bool
	armErr  error
	onPoll  func()
	arms    int
	polls   int
	found   int // result of the next Progress
	closed  *[]*fake
	closing error
}

// newFake returns a transport with events and a flag for them.
func newFake(caps uct.Caps) *fake {
	f := &fake{attr: uct.IfaceAttr{Caps: caps}, event: -1}
	f.ext = uct.IfaceExt{Wake: f, Pending: f}
	return f
}

// newEventFake returns a transport with events, without a flag.
func newEventFake(t *testing.T, caps uct.Caps) *fake {
	f := newFake(caps)
	f.ext.Pending = nil
	f.event = newEvent(t)
	return f
}

// newEvent returns an eventfd that is closed when the test ends.
func newEvent(t *testing.T) int {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	return fd
}

func raise(t *testing.T, fd int) {
	_, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	require.NoError(t, err)
}

func (f *fake) Attr() *uct.IfaceAttr { return &f.attr }
func (f *fake) Ext() *uct.IfaceExt   { return &f.ext }
func (f *fake) EventFD() int         { return f.event }
func (f *fake) EventPending() bool   { return f.pending }
func (f *fake) Arm(uct.Events) error { f.arms++; return f.armErr }

// armChecker is the check of a fake, which joins messages.
type armChecker struct{ still, pushed bool }

func (c *armChecker) Push() { c.pushed = true }

func (c *armChecker) StillArmed() bool {
	defer func() { c.pushed = false }()
	return c.still && c.pushed
}

// checking gives f a check for armed events.
func (f *fake) checking() *armChecker {
	c := &armChecker{}
	f.ext.Armed, f.ext.Push = c, c
	return c
}

func (f *fake) Progress() (n int) {
	f.polls++
	if f.onPoll != nil {
		f.onPoll()
	}
	n, f.found, f.pending = f.found, 0, false
	return n
}

func (f *fake) Close() error {
	if f.closed != nil {
		*f.closed = append(*f.closed, f)
	}
	return f.closing
}

// rig is an engine over fakes.
type rig struct {
	Engine
	owner  busyOwner
	ifaces []*Iface
}

func newRig(t *testing.T, fakes ...*fake) *rig {
	r := &rig{}
	r.Init(&r.owner, 1, false)
	r.ParkLimit = time.Hour // so that only events end a sleep
	for _, f := range fakes {
		i := &Iface{}
		r.Add(i, f)
		r.ifaces = append(r.ifaces, i)
	}
	r.Start()
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func never() bool { return false }

// watching adds a watch to f, which is not idle.
func (f *fake) watching() (watch *ucs.Watch) {
	watch = &ucs.Watch{Word: new(uint32), Quiet: 1, Attention: new(uint32)}
	f.ext.Watch = watcher{watch}
	return watch
}

type watcher struct{ w *ucs.Watch }

func (w watcher) Watch() *ucs.Watch { return w.w }

// TestProgress_TwoAtOnce: each variant of Progress detects a concurrent call.
func TestProgress_TwoAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ticks uint64
		setUp func(f *fake)
	}{
		{"all", due, func(*fake) {}},
		{"polled", IdleTicks, func(*fake) {}},
		{"watched", IdleTicks, func(f *fake) { f.watching() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(0)
			tt.setUp(f)
			r := newRig(t, f)
			r.ifaces[0].Retain()
			var got any
			f.onPoll = func() {
				f.onPoll = nil
				defer func() { got = recover() }()
				r.Ticks = tt.ticks
				r.Progress()
			}
			r.Ticks = tt.ticks
			r.Progress()
			assert.Equal(t, uct.TwoAtOnce, got)
			r.Ticks = tt.ticks
			assert.NotPanics(t, func() { r.Progress() }, "one after the other")
		})
	}
}

// TestProgress_Watch: while the watch of the only polled iface is idle, only the Progress that does all work polls it.
func TestProgress_Watch(t *testing.T) {
	f := newFake(0)
	w := f.watching()
	r := newRig(t, f)
	r.ifaces[0].Retain()
	polls := func(ticks uint64) int {
		before := f.polls
		r.Ticks = ticks
		f.found = 3
		found := r.Progress()
		assert.Equal(t, 3*(f.polls-before), found)
		return f.polls - before
	}
	assert.Equal(t, 1, polls(IdleTicks))
	*w.Word = w.Quiet
	assert.Zero(t, polls(IdleTicks))
	assert.Equal(t, 1, polls(due))
	*w.Attention = 1
	assert.Equal(t, 1, polls(IdleTicks))
}

// TestProgress_Guarded: the engine does not check for concurrent polls of an iface that does so itself. Deferred work is
// still done.
func TestProgress_Guarded(t *testing.T) {
	f := newFake(0)
	f.ext.Guarded = true
	r := newRig(t, f)
	r.ifaces[0].Retain()
	r.ifaces[0].Retain()
	r.ifaces[0].BeginDrain() // one of two endpoints: the iface is polled as before
	r.Progress()
	polls := f.polls
	f.onPoll = func() {
		f.onPoll = nil
		r.Progress()
	}
	assert.NotPanics(t, func() { r.Progress() })
	assert.Equal(t, polls+2, f.polls)
	r.owner.todo = 4
	r.Raise()
	assert.Equal(t, 4, r.Progress())
	assert.Equal(t, polls+3, f.polls)
	assert.Zero(t, r.Progress())
	assert.Equal(t, polls+4, f.polls)
}

// TestClose_PollsNothing: a closed engine polls and checks no iface.
func TestClose_PollsNothing(t *testing.T) {
	used, resting, drains := newFake(0), newFake(uct.CapConnectIface), newEventFake(t, 0)
	var r rig
	r.Init(&r.owner, 1, false)
	for _, f := range []*fake{used, resting, drains} {
		i := &Iface{}
		r.Add(i, f)
		r.ifaces = append(r.ifaces, i)
	}
	r.Start()
	r.ifaces[0].Retain()
	r.ifaces[2].Retain()
	r.ifaces[2].BeginDrain()
	for range 2 * CooldownPolls {
		r.Progress()
	}
	require.NoError(t, r.Close())
	before := [...]int{used.polls, resting.polls, drains.polls}
	resting.pending = true
	for range 3 * IdleTicks {
		assert.Zero(t, r.Progress())
	}
	assert.Equal(t, before, [...]int{used.polls, resting.polls, drains.polls})
}

// pushes counts the calls of Push.
type pushes int

func (p *pushes) Push() { *p++ }

// TestPush: Push calls all ifaces that join messages.
func TestPush(t *testing.T) {
	var a, b pushes
	plain, first, second := newFake(0), newFake(0), newFake(0)
	first.ext.Push, second.ext.Push = &a, &b
	r := newRig(t, plain)
	assert.False(t, r.HasPushers())
	r.Push()
	r.Add(new(Iface), first)
	assert.True(t, r.HasPushers())
	r.Add(new(Iface), second)
	r.Push()
	assert.Equal(t, []pushes{1, 1}, []pushes{a, b})
}

// TestProgress_Several: Progress polls all ifaces with endpoints and returns the sum of their results.
func TestProgress_Several(t *testing.T) {
	fakes := []*fake{newFake(0), newFake(0), newFake(0)}
	r := newRig(t, fakes...)
	assert.Zero(t, r.Polled())
	for i, f := range fakes {
		r.ifaces[i].Retain()
		assert.Equal(t, i+1, r.Polled())
		assert.True(t, r.ifaces[i].Polled())
		assert.Equal(t, 1, r.ifaces[i].Users())
		f.found = 1 << i
	}
	assert.Equal(t, 7, r.Progress())
	assert.Zero(t, r.Progress())
	for _, f := range fakes {
		assert.Equal(t, 2, f.polls)
	}
}

// TestRaise_Post: the next Progress that does all work calls the owner once after Raise or Post.
func TestRaise_Post(t *testing.T) {
	f := newFake(0)
	r := newRig(t, f)
	r.ifaces[0].Retain()
	r.Progress()
	for name, leave := range map[string]func(){"raise": r.Raise, "post": r.Post} {
		r.owner.works, r.owner.todo = 0, 5
		leave()
		found := 0
		for range 3 * IdleTicks {
			found += r.Progress()
		}
		assert.Equal(t, 1, r.owner.works, name)
		assert.Equal(t, 5, found, name)
	}
	r.owner.works = 0
	r.Raise()
	r.Progress()
	assert.Equal(t, 1, r.owner.works, "the very next one")
}

// TestStaysAsleep: a sleep continues after another goroutine has used the worker if nothing is deferred, and if each polled iface has
// an idle watch, or reports that its events are still armed.
func TestStaysAsleep(t *testing.T) {
	watching, checking := newFake(0), newFake(0)
	watch, checker := watching.watching(), checking.checking()
	r := newRig(t, watching, checking)
	sleep := func() {
		t.Helper()
		ready, err := r.ReadyToSleep(func() bool { return false })
		require.NoError(t, err)
		require.True(t, ready)
	}
	sleep()
	assert.True(t, r.StaysAsleep(), "nothing is polled")
	r.Raise()
	assert.False(t, r.StaysAsleep(), "work is deferred")
	r.ifaces[0].Retain()
	r.ifaces[1].Retain()
	*watch.Word, checker.still = watch.Quiet, true
	r.Progress()
	assert.False(t, r.StaysAsleep(), "polled since the sleep has begun, and not armed")
	sleep()
	assert.True(t, r.StaysAsleep(), "it has sent joined messages")
	*watch.Word = watch.Quiet + 1
	assert.False(t, r.StaysAsleep(), "the watch is not idle")
	*watch.Word = watch.Quiet
	checker.still = false
	assert.False(t, r.StaysAsleep(), "events are not armed any more")
	checker.still = true
	assert.True(t, r.StaysAsleep())
	r.ifaces[1].arm()
	assert.False(t, r.StaysAsleep(), "armed for arrivals only")
	sleep()
	require.True(t, r.StaysAsleep())
	r.Stop()
	watch.Word = nil // a closed iface has unmapped it
	assert.False(t, r.StaysAsleep(), "the ifaces are closed")
}

// TestStaysAsleep_NoChecker: a post needs Progress if the iface has no check.
func TestStaysAsleep_NoChecker(t *testing.T) {
	r := newRig(t, newFake(0))
	r.ifaces[0].Retain()
	ready, err := r.ReadyToSleep(func() bool { return false })
	require.NoError(t, err)
	require.True(t, ready)
	assert.False(t, r.StaysAsleep())
}

// TestIdle_Activates: an iface without endpoints is polled when its flag or its
// descriptor shows an event, and rests again after CooldownPolls polls without an event.
func TestIdle_Activates(t *testing.T) {
	flagged, event := newFake(uct.CapConnectIface), newEventFake(t, uct.CapConnectIface)
	event.onPoll = func() { _, _ = unix.Read(event.event, make([]byte, 8)) }
	r := newRig(t, flagged, event)
	r.Progress()
	require.Zero(t, r.Polled())
	for k, f := range []*fake{flagged, event} {
		if f.found = 2; f == flagged {
			f.pending = true
		} else {
			raise(t, f.event)
		}
		found, calls := 0, 0
		for ; !r.ifaces[k].Polled(); calls++ {
			require.LessOrEqual(t, calls, ChecksPerSyscall)
			found += r.Progress()
		}
		assert.Equal(t, 2, found)
		polls := f.polls
		arms := f.arms
		for range CooldownPolls - 1 {
			r.Progress()
		}
		assert.Equal(t, CooldownPolls-1, f.polls-polls)
		assert.True(t, r.ifaces[k].Polled())
		f.found = 1
		assert.Equal(t, 1, r.Progress(), "just in time: it starts again")
		for range CooldownPolls - 1 {
			r.Progress()
		}
		assert.True(t, r.ifaces[k].Polled())
		for range 2 {
			r.Progress()
		}
		assert.False(t, r.ifaces[k].Polled(), "it rests")
		assert.Equal(t, 1, f.arms-arms, "armed again")
	}
}

// TestRest_Flood: an iface that always has an event when it is armed is still polled, and the engine tries
// again later to let it rest.
func TestRest_Flood(t *testing.T) {
	f := newFake(uct.CapConnectIface)
	f.armErr = uct.ErrBusy
	r := newRig(t, f)
	assert.True(t, r.ifaces[0].Polled())
	assert.Equal(t, armTries, f.arms)
	assert.Equal(t, armTries, f.polls)
	r.Progress()
	assert.True(t, r.ifaces[0].Polled())
	assert.Equal(t, 2*armTries, f.arms)
	f.armErr = nil
	r.Progress()
	assert.False(t, r.ifaces[0].Polled())
}

// TestStop_ClosesIfaces: a stopped engine polls and arms no iface, and closes them from last to first.
func TestStop_ClosesIfaces(t *testing.T) {
	var closed []*fake
	broken := errors.New("it does not close")
	a, b := newFake(0), newFake(0)
	a.closed, b.closed, a.closing = &closed, &closed, broken
	r := newRig(t, a, b)
	r.ifaces[0].Retain()
	r.ifaces[1].Retain()
	r.ifaces[1].BeginDrain()
	assert.Equal(t, []error{nil, broken}, r.Stop())
	assert.Equal(t, []*fake{b, a}, closed)
	r.ifaces[1].EndDrain()
	r.ifaces[0].Release()
	r.ifaces[1].Release()
	assert.Empty(t, r.resting)
}

// TestReadyToSleep: a goroutine does not sleep while there is work, because no event would wake it.
func TestReadyToSleep(t *testing.T) {
	f := newEventFake(t, 0)
	r := newRig(t, f)
	r.ifaces[0].Retain()
	ready := func() bool {
		t.Helper()
		ok, err := r.ReadyToSleep(never)
		require.NoError(t, err)
		return ok
	}
	assert.True(t, ready())
	assert.EqualValues(t, 1, r.Sleeps.Load())
	assert.Equal(t, uint64(due), r.Ticks)
	f.found = 1
	assert.False(t, ready(), "something happened")
	assert.True(t, ready())
	f.armErr = uct.ErrBusy
	assert.False(t, ready(), "an event is there")
	f.armErr = ucs.ErrIO
	_, err := r.ReadyToSleep(never)
	assert.ErrorIs(t, err, ucs.ErrIO)
	f.armErr = nil
	calls := 0
	ok, err := r.ReadyToSleep(func() bool { calls++; return true })
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Equal(t, 1, calls, "done is not called after it has returned true")
	calls = 0
	ok, err = r.ReadyToSleep(func() bool { calls++; return false })
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, 2, calls)
	arms := f.arms
	assert.False(t, func() bool { ok, _ := r.ReadyToSleep(func() bool { r.Raise(); return false }); return ok }())
	assert.Equal(t, arms+1, f.arms)
	r.Progress()
	posted := false
	ok, err = r.ReadyToSleep(func() bool {
		if posted { // after the Progress
			r.Post()
		}
		posted = true
		return false
	})
	require.NoError(t, err)
	assert.False(t, ok, "another goroutine has posted")
	for r.posted.Load() {
		r.Progress()
	}
	assert.True(t, ready())

	noEvents := newFake(0)
	noEvents.ext.Wake = nil
	r = newRig(t, noEvents)
	r.ifaces[0].Retain()
	assert.False(t, ready(), "it cannot tell of events")
	assert.Zero(t, noEvents.polls)
}

// TestPark: an event, Signal, the end of the context and ParkLimit end a sleep.
func TestPark(t *testing.T) {
	f := newEventFake(t, 0)
	r := newRig(t, f)
	r.ifaces[0].Retain()
	sleep := func(ctx context.Context) {
		t.Helper()
		ok, err := r.ReadyToSleep(never)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, r.Park(ctx))
	}
	raise(t, f.event)
	sleep(t.Context())
	assert.True(t, testenv.Readable(t, f.event, 0), "the iface reads it, and nobody else")
	_, err := unix.Read(f.event, make([]byte, 8))
	require.NoError(t, err)

	for name, end := range map[string]func(cancel func()){
		"signal": func(func()) { r.Signal() },
		"post":   func(func()) { r.Post() },
		"ctx":    func(cancel func()) { cancel() },
		"event":  func(func()) { raise(t, f.event) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ok, err := r.ReadyToSleep(never)
			require.NoError(t, err)
			require.True(t, ok)
			var errPark error
			testenv.Waits(t, func() { errPark = r.Park(ctx) }, func() { end(cancel) })
			require.NoError(t, errPark)
			_, _ = unix.Read(f.event, make([]byte, 8))
			r.Progress() // handles the Post
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	sleep(ctx)
	r.ParkLimit = time.Millisecond
	sleep(t.Context())
	assert.Zero(t, waiting.parked.Load())
}

// stoppable is a context that counts the functions that wait for its end.
type stoppable struct {
	context.Context
	done           chan struct{}
	waits, stopped int
}

func (s *stoppable) AfterFunc(func()) (stop func() bool) {
	s.waits++
	return func() bool { s.stopped++; return true }
}

func (s *stoppable) Done() <-chan struct{} { return s.done }

// TestParker_WatchesOneContext: sleeps with one context watch it once, until another
// context replaces it or the parker is closed. Otherwise long-lived contexts would collect functions, and end other sleeps.
func TestParker_WatchesOneContext(t *testing.T) {
	p, err := newParker(nil)
	require.NoError(t, err)
	var contexts [2]*stoppable
	for i := range contexts {
		ctx := &stoppable{Context: context.Background(), done: make(chan struct{})}
		contexts[i] = ctx
		for range 3 {
			p.wake()
			_, err := p.wait(ctx, time.Hour)
			require.NoError(t, err)
			assert.Equal(t, 1, ctx.waits)
			assert.Zero(t, ctx.stopped)
		}
	}
	assert.Equal(t, 1, contexts[0].stopped)
	require.NoError(t, p.close())
	assert.Equal(t, 1, contexts[1].stopped)
}

// TestParker_ContextEnds: a sleep ends when its context ends, before or during the sleep, also after sleeps with
// other contexts and deadlines. The next sleep with another context sleeps again.
func TestParker_ContextEnds(t *testing.T) {
	p, err := newParker(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.close()) }()
	sleep := func(ctx context.Context) {
		ready, err := p.wait(ctx, time.Hour)
		require.NoError(t, err)
		require.Empty(t, ready)
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		p.wake()
		_, err := p.wait(ctx, time.Hour)
		require.NoError(t, err)
		time.AfterFunc(time.Millisecond, cancel)
		for ctx.Err() == nil { // the end of another context may end the sleep first
			sleep(ctx)
		}
		sleep(ctx)
		soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		for soon.Err() == nil {
			sleep(soon)
		}
		cancel()
	}
	for range 2 {
		_, err := p.wait(t.Context(), time.Millisecond)
		require.NoError(t, err)
	}
}

// TestParker_NoAllocs: a sleep with the context of the previous sleep does not allocate.
func TestParker_NoAllocs(t *testing.T) {
	p, err := newParker(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	testenv.NoAllocs(t, "sleep", func() {
		p.wake()
		_, err := p.wait(ctx, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestParker_PastDeadline: a sleep whose deadline has passed before it begins returns no descriptors, also not those of the
// previous sleep.
func TestParker_PastDeadline(t *testing.T) {
	event := newEvent(t)
	p, err := newParker([]int{noFD, event})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.close()) }()
	raise(t, event)
	ready, err := p.wait(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Len(t, ready, 1)
	assert.EqualValues(t, 1, ready[0].Fd)
	ready, err = p.wait(t.Context(), -time.Hour)
	require.NoError(t, err)
	assert.Empty(t, ready)
}

// TestReadyToSleep_NoEvents: an iface without events and without endpoints does not prevent a sleep.
func TestReadyToSleep_NoEvents(t *testing.T) {
	used, other := newEventFake(t, 0), newFake(0)
	other.ext.Wake = nil
	r := newRig(t, other, used)
	r.ifaces[1].Retain()
	ready, err := r.ReadyToSleep(never)
	require.NoError(t, err)
	assert.True(t, ready)
	raise(t, used.event)
	require.NoError(t, r.Park(t.Context()))
}

// TestParker_Closed: wake of a closed parker has no effect, and a closed parker does not sleep.
func TestParker_Closed(t *testing.T) {
	p, err := newParker([]int{noFD, newEvent(t)})
	require.NoError(t, err)
	require.NoError(t, p.close())
	var others []int // one of them probably has the number of the parker's eventfd
	for range 4 {
		others = append(others, newEvent(t))
	}
	p.wake()
	for _, fd := range others {
		assert.False(t, testenv.Readable(t, fd, 0), "the descriptor of somebody else is not written to")
		raise(t, fd)
	}
	p.drain()
	for _, fd := range others {
		assert.True(t, testenv.Readable(t, fd, 0), "nor read from")
	}
	_, err = p.wait(t.Context(), time.Hour)
	assert.Error(t, err)
	assert.Error(t, p.watch(others[0], 1))
}

// TestParker_BadDescriptor: newParker fails for a descriptor that epoll cannot watch, and closes its descriptors.
func TestParker_BadDescriptor(t *testing.T) {
	var r rig
	f := newFake(0)
	f.event = 1 << 30
	r.Init(&r.owner, 1, false)
	i := &Iface{}
	r.Add(i, f)
	r.Start()
	i.Retain()
	_, err := r.ReadyToSleep(never)
	assert.ErrorIs(t, err, unix.EBADF)
	r.Signal() // has no effect without a parker
	require.NoError(t, r.Close())
}

// TestNewParker_NoDescriptors: newParker fails if the process is out of descriptors.
func TestNewParker_NoDescriptors(t *testing.T) {
	testenv.WithoutDescriptors(t, func() {
		_, err := newParker(nil)
		assert.ErrorIs(t, err, unix.EMFILE)
	})
	free := func() { unix.Close(newDescriptor(t)) }
	testenv.WithDescriptors(t, 1, func() {
		_, err := newParker(nil)
		assert.ErrorIs(t, err, unix.EMFILE)
		free() // the first descriptor is closed again
	})
	testenv.WithDescriptors(t, 2, func() {
		_, err := newParker([]int{1 << 30})
		assert.ErrorIs(t, err, unix.EBADF)
		free()
	})
}

// newDescriptor returns a descriptor that the caller closes.
func newDescriptor(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	return fd
}

// TestUntil: Until returns when done returns true, which it does not call again, when the context ends, and when
// the engine is closed.
func TestUntil(t *testing.T) {
	f := newEventFake(t, 0)
	r := newRig(t, f)
	r.ifaces[0].Retain()
	require.NoError(t, r.Turn.Take())
	calls := 0
	require.NoError(t, r.Until(t.Context(), func() bool { calls++; return true }))
	assert.Equal(t, 1, calls)
	assert.Zero(t, f.polls)

	busy := func() { f.found = 1 }
	f.onPoll = busy // each poll finds an event
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := f.polls
	require.ErrorIs(t, r.Until(ctx, never), context.Canceled)
	assert.Equal(t, YieldPolls-1, f.polls-before, "it looks at the context all the same")
	f.onPoll = nil
	require.ErrorIs(t, r.Until(ctx, never), context.Canceled)

	done, last := false, false
	f.onPoll = func() { done = true }
	require.NoError(t, r.Until(t.Context(), func() bool {
		require.False(t, last, "done is not called after it has returned true")
		last = done
		return done
	}))
	f.onPoll, f.armErr = nil, ucs.ErrIO
	require.ErrorIs(t, r.Until(t.Context(), never), ucs.ErrIO)
	f.armErr = nil
	assert.Zero(t, waiting.spinning.Load())
	r.Turn.Release()
}

// TestUntil_Sleeps: a wait without events polls YieldPolls times, then twice more, calls done after
// each poll, and arms the ifaces.
func TestUntil_Sleeps(t *testing.T) {
	f := newEventFake(t, 0)
	r := newRig(t, f)
	assert.Equal(t, 1, r.Spin.Fixed, "as Init was told")
	r.ifaces[0].Retain()
	var polls []int
	over := false
	done := func() bool {
		polls = append(polls, f.polls)
		return over
	}
	f.armErr = ucs.ErrIO // ends the wait
	require.ErrorIs(t, r.Until(t.Context(), done), ucs.ErrIO)
	var want []int
	for i := range YieldPolls {
		want = append(want, i)
	}
	assert.Equal(t, append(want, YieldPolls+1, YieldPolls+2), polls)
	assert.Equal(t, 1, f.arms)

	f.armErr, f.polls = nil, 0
	f.onPoll = func() { over = f.polls == YieldPolls+2 }
	polls = nil
	require.NoError(t, r.Until(t.Context(), done))
	assert.Equal(t, YieldPolls+2, f.polls)
	assert.Equal(t, 1, f.arms, "it is over before the sleep")
}

// TestUntil_Busy: a wait that finds an event within each YieldPolls polls never sleeps.
func TestUntil_Busy(t *testing.T) {
	f := newEventFake(t, 0)
	r := newRig(t, f)
	r.ifaces[0].Retain()
	f.onPoll = func() {
		if f.polls%(YieldPolls-1) == 0 {
			f.found = 1
		}
	}
	require.NoError(t, r.Until(t.Context(), func() bool { return f.polls > 10*YieldPolls }))
	assert.Zero(t, f.arms)
}

// TestTurn: one goroutine at a time has the turn, and a goroutine that closes the engine waits for it.
func TestTurn(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.Turn.Take())
	assert.True(t, r.Turn.Taken())
	assert.PanicsWithValue(t, uct.TwoAtOnce, func() { _ = r.Turn.Take() })
	r.inside = true // as after a panic in a callback
	r.Leave()
	assert.False(t, r.Turn.Taken())
	assert.NotPanics(t, func() { r.Progress() })
}

// TestTurn_Close: BeginClose ends the blocking call of another goroutine and waits for it. That call and
// later ones return when the worker is closed.
func TestTurn_Close(t *testing.T) {
	f := newEventFake(t, 0)
	var r rig
	r.Init(&r.owner, 1, false)
	i := &Iface{}
	r.Add(i, f)
	r.Start()
	i.Retain()
	require.NoError(t, r.Turn.Take())
	testenv.Waits(t, r.BeginClose, func() {
		testenv.ProgressWithin(t, testenv.Watchdog, r.Turn.closing)
		assert.ErrorIs(t, r.Until(t.Context(), never), ErrClosed)
		go r.Turn.Release()
	})
	var err error
	testenv.Waits(t, func() { err = r.Turn.Take() }, func() { require.NoError(t, r.Close()) })
	assert.ErrorIs(t, err, ErrClosed)
	testenv.Waits(t, r.BeginClose, r.EndClose) // one goroutine closes at a time
	r.EndClose()
}

// TestBeginClose_Sleeper: BeginClose wakes a blocking call that sleeps.
func TestBeginClose_Sleeper(t *testing.T) {
	f := newEventFake(t, 0)
	r := &rig{}
	r.Init(&r.owner, 1, false)
	i := &Iface{}
	r.Add(i, f)
	r.Start()
	i.Retain()
	r.ParkLimit = time.Hour
	require.NoError(t, r.Turn.Take())
	over := make(chan error)
	go func() {
		err := r.Until(context.Background(), never)
		r.Turn.Release()
		over <- err
	}()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return waiting.parked.Load() == 1 })
	r.BeginClose()
	require.NoError(t, r.Close())
	assert.ErrorIs(t, <-over, ErrClosed)
	r.EndClose()
}

// TestAlarm_WakesSleeper: the alarm ends the sleep of a blocking call.
func TestAlarm_WakesSleeper(t *testing.T) {
	r := newRig(t, newEventFake(t, 0))
	r.ifaces[0].Retain()
	r.Alarm.Set(r.Alarm.Now() + time.Millisecond)
	require.NoError(t, r.Turn.Take())
	require.NoError(t, r.Until(t.Context(), func() bool { return len(r.owner.alarms) > 0 }))
	r.Turn.Release()
}

// TestAlarm: the alarm calls the owner at the earliest time, not before it, and once AlarmGrace later if the worker was
// late.
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rig
		r.Init(&r.owner, 1, false)
		progress := func() []time.Duration {
			synctest.Wait()
			r.owner.alarms = nil
			r.Ticks = due
			r.Progress()
			return r.owner.alarms
		}
		const ms = time.Millisecond
		require.Zero(t, r.Alarm.Now())
		assert.False(t, r.Alarm.Pending())
		r.Alarm.Set(20 * ms)
		r.Alarm.Set(30 * ms) // a later time has no effect
		assert.True(t, r.Alarm.Pending())
		r.Alarm.Set(10 * ms)
		time.Sleep(10*ms - 1)
		assert.Empty(t, progress())
		assert.False(t, r.Alarm.Due())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.True(t, r.Alarm.Due())
		assert.Equal(t, []time.Duration{10 * ms}, progress())
		assert.False(t, r.Alarm.Due())
		assert.False(t, r.Alarm.Pending())
		time.Sleep(time.Second)
		assert.Empty(t, progress(), "nothing is set")

		at := r.Alarm.Now() + ms
		r.Alarm.Set(at)
		time.Sleep(ms + AlarmLate)
		assert.Equal(t, []time.Duration{at + AlarmLate}, progress(), "just in time")

		at = r.Alarm.Now() + ms
		r.Alarm.Set(at)
		time.Sleep(ms + AlarmLate + 1)
		assert.Empty(t, progress(), "it was away")
		assert.True(t, r.Alarm.Pending())
		time.Sleep(AlarmGrace - 1)
		assert.Empty(t, progress())
		time.Sleep(1 + time.Hour)
		assert.Len(t, progress(), 1, "one grace only")

		r.Alarm.Set(r.Alarm.Now() + ms)
		require.NoError(t, r.Close())
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.False(t, r.Alarm.Due(), "no timer runs after Close")
	})
}

// TestSignal_NoSleeper: Signal writes to the descriptor only if a goroutine sleeps or is about to, or if the owner waits on
// EventFD.
func TestSignal_NoSleeper(t *testing.T) {
	r := newRig(t, newEventFake(t, 0))
	require.NoError(t, r.makeParker())
	signaled := func() bool {
		r.Signal()
		written := testenv.Readable(t, r.park.signal, 0)
		r.park.drain()
		return written
	}
	assert.False(t, signaled(), "before the first sleep")
	ok, err := r.ReadyToSleep(func() bool {
		assert.True(t, signaled(), "done may have been called already")
		return true
	})
	require.NoError(t, err)
	require.False(t, ok)
	assert.False(t, signaled(), "done has returned true")
	ok, err = r.ReadyToSleep(never)
	require.NoError(t, err)
	require.True(t, ok)
	r.Signal()
	require.NoError(t, r.Park(t.Context()))
	assert.False(t, signaled(), "after a sleep")
	_, err = r.EventFD()
	require.NoError(t, err)
	assert.True(t, signaled(), "the owner may wait on EventFD")
	_, err = r.ReadyToSleep(func() bool { return true })
	require.NoError(t, err)
	assert.True(t, signaled(), "it still may")
}
