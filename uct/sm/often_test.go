package sm

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// sleepOften makes the next Arm set stateOften.
func sleepOften(it *iface) {
	it.sleeps, it.lastSleep = oftenSleeps-1, time.Now().Add(time.Hour) // whatever the time is then, it is not long after
}

func isOften(it *iface) bool { return it.ctl.state.Load()&stateOften != 0 }

// TestOften_ManySleeps: only an iface that sleeps often sets stateOften.
func TestOften_ManySleeps(t *testing.T) {
	s := openWithout(t, false)
	defer s.close(t)
	for range 3 * oftenSleeps {
		s.iface.lastSleep = time.Now().Add(-time.Hour)
		require.NoError(t, s.iface.Arm(uct.EventRecv))
		require.False(t, isOften(s.iface))
	}
	sleepOften(s.iface)
	require.NoError(t, s.iface.Arm(uct.EventRecv))
	assert.True(t, isOften(s.iface))
	require.NoError(t, s.iface.Arm(uct.EventRecv))
	assert.True(t, isOften(s.iface), "it stays")
}

// TestOften_WithoutMembarrier: without membarrier stateOften is not needed, because barriers are always real.
func TestOften_WithoutMembarrier(t *testing.T) {
	s := openWithout(t, true)
	defer s.close(t)
	sleepOften(s.iface)
	require.NoError(t, s.iface.Arm(uct.EventRecv))
	assert.False(t, isOften(s.iface))
}

// TestOften_ClearedByManyMessages: a peer that sends many messages between two sleeps clears stateOften, but not while the
// iface is armed.
func TestOften_ClearedByManyMessages(t *testing.T) {
	w := openTwo(t, Config{})
	if !w.b.md.(*domain).expedited {
		t.Skip("the kernel refuses membarrier")
	}
	b := w.b.iface
	send := func(n int) {
		for range n {
			w.until(func() bool { return w.ab.AMShort(1, 2, nil) == nil })
		}
	}
	w.until(func() bool { return b.Arm(uct.EventRecv) == nil })
	sleepOften(b)
	w.until(func() bool { return b.Arm(uct.EventRecv) == nil })
	require.True(t, isOften(b))
	before := w.ab.it.fence.Load()
	send(1)
	assert.Greater(t, w.ab.it.fence.Load(), before, "a barrier before the look")
	assert.Zero(t, b.ctl.state.Load()&stateArmed, "it was woken")
	send(oftenMessages / 2)
	w.until(func() bool { return b.Arm(uct.EventRecv) == nil })
	send(oftenMessages - 1)
	assert.True(t, isOften(b), "counted anew after a sleep")
	b.ctl.state.Or(stateRecv) // as if b had called Arm, without counting it
	w.ab.sentAwake = oftenMessages
	s := w.ab.recheckState()
	assert.NotZero(t, s&stateRecv)
	assert.True(t, isOften(b), "it relies on it")
	b.disarm()
	b.ctl.state.And(^uint32(stateArmed))
	send(2)
	assert.False(t, isOften(b))
	before = w.ab.it.fence.Load()
	send(1)
	assert.Equal(t, before, w.ab.it.fence.Load())
}

// TestOften_NoWakeupIsLost: two ifaces sleep at every message, while stateOften is set and cleared. Only messages of the
// peer end the sleeps.
func TestOften_NoWakeupIsLost(t *testing.T) {
	testenv.SkipRace(t, "what orders the two is a barrier that the race detector does not know")
	w := openTwo(t, Config{})
	ba := w.b.connect(t, w.a.exchangedInfo())
	defer func() { require.NoError(t, ba.Close()) }()
	rounds := testenv.Rounds(3000, 1_000_000)
	gone := make(chan error, 1)
	go func() { gone <- bounce(w.b.iface, ba, rounds, false) }()
	assert.NoError(t, bounce(w.a.iface, w.ab, rounds, true))
	assert.NoError(t, <-gone)
}

// bounce replies to messages, and sends the first one if first is set.
func bounce(it *iface, e *endpoint, rounds int, first bool) error {
	seen := 0
	err := it.SetAMHandler(1, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { seen++; return false }))
	for i := 0; i < rounds && err == nil; i++ {
		if first || i > 0 {
			for err = e.AMShort(1, uint64(i), nil); err == uct.ErrNoResource; err = e.AMShort(1, uint64(i), nil) {
				it.Progress()
			}
		}
		if i%16 == 0 {
			it.sleeps, it.lastSleep = oftenSleeps-1, time.Now().Add(time.Hour)
		}
		if i%64 == 32 {
			e.sentAwake = oftenMessages
		}
		for had := seen; seen == had && err == nil; {
			if it.Progress() > 0 || it.Arm(uct.EventRecv|uct.EventSendComp) != nil {
				continue
			}
			if err = wokenWithin(it.EventFD(), watchdog); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
	}
	if !first && err == nil {
		err = e.AMShort(1, 0, nil)
	}
	return err
}

// wokenWithin waits until fd is readable.
func wokenWithin(fd int, limit time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		switch n, err := unix.Poll(fds, int(limit.Milliseconds())); {
		case err == unix.EINTR: // by a signal of the runtime
		case err != nil:
			return err
		case n == 0:
			return errors.New("a wake-up was lost")
		default:
			return nil
		}
	}
}
