package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// quietOwner never has work.
type quietOwner struct{ Owner }

func (quietOwner) Work() int { return 0 }

// counted is a transport with events, whose Progress returns n.
type counted struct {
	uct.Iface
	attr     uct.IfaceAttr
	polls, n int
}

func (c *counted) Attr() *uct.IfaceAttr { return &c.attr }
func (c *counted) Ext() *uct.IfaceExt   { return &uct.IfaceExt{Wake: c, Pending: c} }
func (c *counted) EventFD() int         { return -1 }
func (c *counted) Arm(uct.Events) error { return nil }
func (c *counted) EventPending() bool   { return false }
func (c *counted) Progress() (handled int) {
	c.polls++
	handled, c.n = c.n, 0
	return handled
}

// TestIface_Drain: each Progress polls an iface with draining endpoints for a while, then only the checks of resting
// ifaces do. Each Progress polls it again after an event, when an endpoint is opened,
// and when an endpoint stops draining.
func TestIface_Drain(t *testing.T) {
	var e Engine
	e.Init(quietOwner{}, 0, false)
	data, aux := &counted{}, &counted{attr: uct.IfaceAttr{Caps: uct.CapConnectIface}}
	var d, a Iface
	e.Add(&d, data)
	e.Add(&a, aux)
	e.Start()
	d.Retain()
	polls := func(n int) int {
		before := aux.polls
		for range n {
			e.Progress()
		}
		return aux.polls - before
	}
	const looks = 100
	often := func(why string) { assert.Equal(t, looks, polls(looks), why) }
	seldom := func(why string) {
		polls(2 * CooldownPolls)
		assert.InDelta(t, looks, polls(looks*(IdleTicks+1)), 1, why)
	}
	a.Retain()
	polls(2 * CooldownPolls)
	often("it is used")
	a.BeginDrain()
	often("at first")
	seldom("it drains")
	aux.n = 1
	polls(IdleTicks + 1)
	often("something came")
	seldom("and no more")
	a.Retain()
	often("another endpoint is used")
	polls(2 * CooldownPolls)
	often("and stays so")
	a.BeginDrain()
	seldom("both drain")
	a.EndDrain()
	often("one sends again")
	a.Release()
	seldom("that was closed")
	a.EndDrain()
	a.Release()
	polls(2)
	assert.Zero(t, polls(looks*(IdleTicks+1)), "it rests")
}

// TestIface_Release: an iface that can receive without endpoints rests at the next Progress after its last endpoint
// was closed. Any other iface is polled for a while, because its endpoints may have messages to send.
func TestIface_Release(t *testing.T) {
	for caps, rests := range map[uct.Caps]bool{uct.CapConnectIface: true, 0: false} {
		r := newRig(t, newFake(caps))
		i := r.ifaces[0]
		i.Retain()
		i.Retain()
		i.Release()
		r.Progress()
		assert.True(t, i.Polled())
		i.Release()
		assert.True(t, i.Polled())
		r.Progress()
		assert.Equal(t, !rests, i.Polled())
		for range CooldownPolls + 1 {
			r.Progress()
		}
		assert.False(t, i.Polled())
	}
}

// TestIdle_ChecksDescriptors: one of ChecksPerSyscall checks polls the descriptors of ifaces without a flag.
func TestIdle_ChecksDescriptors(t *testing.T) {
	f := newEventFake(t, uct.CapConnectIface)
	r := newRig(t, f)
	raise(t, f.event)
	for range ChecksPerSyscall - 1 {
		r.Progress()
		assert.Zero(t, f.polls)
	}
	r.Progress()
	assert.Equal(t, 1, f.polls)

	r = newRig(t, newFake(uct.CapConnectIface))
	for range ChecksPerSyscall {
		r.Progress()
	}
	assert.Zero(t, r.idleChecks, "each has a flag: the kernel is not asked")
}

// TestReadyToSleep_Unpolled: an iface that is not polled is armed if it has endpoints, or if
// messages may arrive. If a message has arrived already, it is polled.
func TestReadyToSleep_Unpolled(t *testing.T) {
	drains, receives, unused := newEventFake(t, 0), newEventFake(t, uct.CapConnectIface), newEventFake(t, 0)
	r := newRig(t, drains, receives, unused)
	r.ifaces[0].Retain()
	r.ifaces[0].BeginDrain()
	for range 2 * CooldownPolls {
		r.Progress()
	}
	require.Zero(t, r.Polled())
	before := receives.arms
	ready, err := r.ReadyToSleep(never)
	require.NoError(t, err)
	assert.True(t, ready)
	assert.Equal(t, 1, drains.arms)
	assert.Equal(t, before+1, receives.arms)
	assert.Zero(t, unused.arms)

	receives.armErr, receives.found = uct.ErrBusy, 3
	polls := receives.polls
	ready, err = r.ReadyToSleep(never)
	require.NoError(t, err)
	assert.False(t, ready)
	assert.Equal(t, polls, receives.polls, "arming runs no handlers")
	assert.True(t, r.ifaces[1].Polled())
	assert.Equal(t, 3, r.Progress())
}

// stirred is a transport without endpoints whose descriptor becomes readable; Progress reads it.
type stirred struct {
	counted
	event int
}

func (s *stirred) Ext() *uct.IfaceExt { return &uct.IfaceExt{Wake: s} }
func (s *stirred) EventFD() int       { return s.event }
func (s *stirred) Progress() int {
	_, _ = unix.Read(s.event, make([]byte, 8)) // EAGAIN if it was not readable
	return s.counted.Progress()
}

// TestPark_ReadsDescriptorsOfUnusedIfaces: if the descriptor of an iface without endpoints, which is not armed, becomes
// readable, it ends only one sleep.
func TestPark_ReadsDescriptorsOfUnusedIfaces(t *testing.T) {
	event, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(event)
	var e Engine
	e.Init(quietOwner{}, 0, false)
	var unused, used Iface
	other := &stirred{event: event}
	e.Add(&used, &counted{attr: uct.IfaceAttr{Caps: uct.CapConnectIface}, n: 1})
	e.Add(&unused, other)
	e.Start()
	defer func() { require.NoError(t, e.Close()) }()
	park := func() {
		t.Helper()
		ready, err := e.ReadyToSleep(func() bool { return false })
		for ; !ready && err == nil; ready, err = e.ReadyToSleep(func() bool { return false }) {
			e.Progress()
		}
		require.NoError(t, err)
		require.NoError(t, e.Park(context.Background()))
	}

	for range 3 {
		raise(t, event)
		park()
		assert.Zero(t, e.Progress())
		assert.False(t, testenv.Readable(t, event, 0), "it was read")
		for unused.Polled() {
			e.Progress()
		}
		polls := other.polls
		e.Signal()
		park()
		for range 2 * IdleTicks {
			e.Progress()
		}
		assert.Equal(t, polls, other.polls, "it rests again")
	}
}

// TestProgress_AfterClose: Progress and Push do not use closed ifaces, also if an event of an iface without endpoints has ended the
// sleep of a goroutine while another one closed the engine.
func TestProgress_AfterClose(t *testing.T) {
	f := newEventFake(t, 0)
	joined := f.checking()
	var r rig
	r.Init(&r.owner, 1, false)
	r.Add(&Iface{}, f)
	r.Start()
	ready, err := r.ReadyToSleep(never)
	require.NoError(t, err)
	require.True(t, ready)
	raise(t, f.event)
	readable, err := r.park.wait(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Len(t, readable, 1)
	require.Len(t, r.Stop(), 1)
	require.NoError(t, r.Close())
	r.markWoken(readable)
	joined.pushed = false
	polls := f.polls
	for range 2 * IdleTicks {
		r.Progress()
		r.Push()
	}
	assert.Equal(t, polls, f.polls)
	assert.False(t, joined.pushed)
}

// TestAddLater: AddLater ends the sleep of another goroutine. The iface rests later, and its events end later sleeps.
// AddLater fails for an iface whose descriptor the kernel cannot watch.
func TestAddLater(t *testing.T) {
	f, late := newEventFake(t, 0), newEventFake(t, uct.CapConnectIface)
	r := newRig(t, f)
	r.ifaces[0].Retain()
	sleep := func(end func()) {
		t.Helper()
		ok, err := r.ReadyToSleep(never)
		require.NoError(t, err)
		require.True(t, ok)
		var errPark error
		testenv.Waits(t, func() { errPark = r.Park(t.Context()) }, end)
		require.NoError(t, errPark)
	}
	var i, first, noEvents Iface
	require.NoError(t, r.AddLater(&first, newEventFake(t, uct.CapConnectIface)), "before the first sleep")
	r.Progress()
	assert.False(t, first.Polled())
	sleep(func() { require.NoError(t, r.AddLater(&i, late)) })
	assert.True(t, i.Polled())
	r.Progress()
	assert.False(t, i.Polled())
	assert.Positive(t, late.arms)
	sleep(func() { raise(t, late.event) })
	silent := newFake(0)
	silent.ext.Wake = nil
	require.NoError(t, r.AddLater(&noEvents, silent), "it has no events")

	bad := newFake(uct.CapConnectIface)
	before := len(r.Engine.ifaces)
	assert.ErrorIs(t, r.AddLater(new(Iface), bad), unix.EBADF)
	assert.Len(t, r.Engine.ifaces, before)
}

// TestAddLater_EventAtOnce: an iface that is added between ReadyToSleep and Park may end the sleep, and its event is
// handled.
func TestAddLater_EventAtOnce(t *testing.T) {
	r := newRig(t, newEventFake(t, 0))
	r.ifaces[0].Retain()
	ready, err := r.ReadyToSleep(never)
	require.NoError(t, err)
	require.True(t, ready)
	late := newEventFake(t, uct.CapConnectIface)
	var i Iface
	require.NoError(t, r.AddLater(&i, late))
	raise(t, late.event)
	require.NoError(t, r.Park(t.Context()))
	late.found = 2
	found := 0
	for range ChecksPerSyscall * (IdleTicks + 1) {
		found += r.Progress()
	}
	assert.Equal(t, 2, found)
}

// TestIface_DrainWithoutEvents: an iface without events is polled as long as an endpoint drains.
func TestIface_DrainWithoutEvents(t *testing.T) {
	f := newFake(0)
	f.ext.Wake = nil
	r := newRig(t, f)
	r.ifaces[0].Retain()
	r.ifaces[0].BeginDrain()
	for range 2 * CooldownPolls {
		r.Progress()
	}
	r.ifaces[0].rest()
	assert.True(t, r.ifaces[0].Polled())
}

// TestSleep_NotAfterEvent: a wait that finds an event before it sleeps does not sleep.
func TestSleep_NotAfterEvent(t *testing.T) {
	f := newEventFake(t, 0)
	r := newRig(t, f)
	r.ifaces[0].Retain()
	f.found = 1
	require.NoError(t, r.sleep(t.Context(), never))
	assert.Zero(t, r.Sleeps.Load())
}

// TestStart_PollsIfacesWithoutEvents: an iface that can receive messages but has no events is polled from the start;
// with pollIdle, every iface is.
func TestStart_PollsIfacesWithoutEvents(t *testing.T) {
	for _, pollIdle := range []bool{false, true} {
		for _, events := range []bool{false, true} {
			for caps, receives := range map[uct.Caps]bool{0: false, uct.CapConnectIface: true} {
				var r rig
				r.Init(&r.owner, 1, pollIdle)
				f := newFake(caps)
				if !events {
					f.ext.Wake, f.ext.Pending = nil, nil
				}
				i := &Iface{}
				r.Add(i, f)
				r.Start()
				want := pollIdle || receives && !events
				assert.Equal(t, want, i.Polled(), "%v %v %v", pollIdle, events, receives)
				f.found = 3
				assert.Equal(t, want, r.Progress() == 3, "%v %v %v", pollIdle, events, receives)
				require.NoError(t, r.Close())
			}
		}
	}
}

// TestIface_CooldownPolls: a draining iface rests after exactly CooldownPolls polls without an event.
func TestIface_CooldownPolls(t *testing.T) {
	r := newRig(t, newEventFake(t, 0))
	r.ifaces[0].Retain()
	r.ifaces[0].BeginDrain()
	for range CooldownPolls - 1 {
		r.Progress()
	}
	assert.Empty(t, r.resting)
	r.Progress()
	assert.Len(t, r.resting, 1)
}

// TestEngine_Round: a round is shorter while a polled iface makes a system call in each poll.
func TestEngine_Round(t *testing.T) {
	r := newRig(t, newFake(uct.CapConnectIface), newEventFake(t, uct.CapConnectIface))
	assert.Equal(t, YieldPolls, r.Round())
	r.ifaces[0].Retain()
	assert.Equal(t, YieldPolls, r.Round())
	r.ifaces[1].Retain()
	assert.Equal(t, kernelPolls, r.Round())
	r.ifaces[0].Release()
	r.Progress()
	assert.Equal(t, kernelPolls, r.Round())
	r.ifaces[1].Release()
	r.Progress()
	assert.Equal(t, YieldPolls, r.Round())
}
