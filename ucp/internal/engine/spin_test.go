package engine

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// waitOf makes a waiter wait for d, with polling rounds of 1 us, and returns
// the time for which it polled.
func (p *Spinner) waitOf(d time.Duration) (spun time.Duration) {
	var s IdleTime
	for p.Again(&s) && spun < d {
		time.Sleep(time.Microsecond)
		spun += time.Microsecond
	}
	time.Sleep(d - spun)
	p.Found(&s)
	return spun
}

// TestSpinner_AdaptsToWaits: a worker with short waits spins through them, a worker with
// long waits parks at once, and each adapts when the waits change.
func TestSpinner_AdaptsToWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Spinner
		assert.Zero(t, p.waitOf(20*time.Microsecond), "the first wait tells how long it takes")
		for range 8 {
			p.waitOf(20 * time.Microsecond)
		}
		assert.Equal(t, 20*time.Microsecond, p.waitOf(20*time.Microsecond))
		assert.Equal(t, spinMax, p.waitOf(time.Second), "never longer than that")
		for range 8 {
			p.waitOf(time.Second)
		}
		assert.Zero(t, p.waitOf(time.Second))
		for range 8 {
			p.waitOf(20 * time.Microsecond)
		}
		assert.Equal(t, 20*time.Microsecond, p.waitOf(20*time.Microsecond))
		assert.Zero(t, waiting.spinning.Load())
	})
}

// TestSpinner_BacksOffAfterPreemption: a waiter that was preempted while it polled does not spin for a while. The time
// doubles if it is preempted again soon.
func TestSpinner_BacksOffAfterPreemption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slack = 12 * time.Microsecond
		p := Spinner{budget: spinMax}
		rests := func() time.Duration {
			var s IdleTime
			require.True(t, p.Again(&s))
			time.Sleep(spinPreempted)
			require.False(t, p.Again(&s))
			s.stopSpinning()
			at := clock()
			for p.waitOf(slack/3) == 0 {
			}
			return clock() - at
		}
		assert.InDelta(t, spinBackoff, rests(), float64(slack))
		assert.InDelta(t, 2*spinBackoff, rests(), float64(slack))
		assert.InDelta(t, 4*spinBackoff, rests(), float64(slack))
		for range 10 {
			rests()
		}
		assert.InDelta(t, spinBackoffMax, rests(), float64(slack))
		time.Sleep(time.Minute)
		assert.InDelta(t, spinBackoff, rests(), float64(slack))
	})
}

// TestSpinner_BackoffEnds: a waiter spins again at the end of the backoff, and not before.
func TestSpinner_BackoffEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Spinner{budget: spinMax, backoff: spinBackoff, until: clock() + spinBackoff}
		time.Sleep(spinBackoff - 1)
		assert.False(t, p.Again(&IdleTime{}))
		time.Sleep(time.Nanosecond)
		var s IdleTime
		assert.True(t, p.Again(&s))
		s.stopSpinning()
	})
}

// TestSpinner_EndlessYields: a waiter that never sleeps yields its CPU to other processes too.
func TestSpinner_EndlessYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := clock()
		p, s := Spinner{Fixed: -1}, IdleTime{yielded: first}
		time.Sleep(spinYield - 1)
		require.True(t, p.Again(&s))
		assert.Equal(t, first, s.yielded)
		time.Sleep(time.Nanosecond)
		require.True(t, p.Again(&s))
		assert.Equal(t, clock(), s.yielded)
	})
}

// TestSpinner_Fixed: a configured number of polls is exact; a negative one spins without limit.
func TestSpinner_Fixed(t *testing.T) {
	p := Spinner{Fixed: 1}
	assert.True(t, p.Again(&IdleTime{}))
	assert.False(t, p.Again(&IdleTime{Polls: 1}))
	p.Fixed = 128
	assert.True(t, p.Again(&IdleTime{Polls: 127}))
	assert.False(t, p.Again(&IdleTime{Polls: 128}))
	p.Fixed = -1
	assert.True(t, p.Again(&IdleTime{Polls: 1 << 40}))
}

// TestSpinner_YieldsCPU: a waiter that spins yields its CPU every spinYield, and
// not before it has spun for that time.
func TestSpinner_YieldsCPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Spinner{budget: spinMax}
		var s IdleTime
		var offers []time.Duration
		for range spinMax / time.Microsecond {
			before := s.yielded
			require.True(t, p.Again(&s))
			if before != 0 && s.yielded != before {
				offers = append(offers, s.yielded-s.since)
			}
			time.Sleep(time.Microsecond)
		}
		assert.False(t, p.Again(&s))
		assert.Zero(t, p.backoff, "no round took long")
		var want []time.Duration
		for at := spinYield; at < spinMax; at += spinYield {
			want = append(want, at)
		}
		assert.Equal(t, want, offers)
	})
}

// TestWaiters_LeaveOneCPU: while goroutines are parked, not every P spins.
func TestWaiters_LeaveOneCPU(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	var c waiters
	for range 3 {
		assert.True(t, c.admit(), "nobody is parked")
	}
	c.spinning.Store(0)
	c.parked.Store(1)
	assert.True(t, c.admit())
	assert.False(t, c.admit())
	assert.Equal(t, int32(1), c.spinning.Load())
	assert.Equal(t, 2, runtime.GOMAXPROCS(0), "the number of processors is read, and not set")
}

// TestSpinner_Adapt: a short wait doubles the spin time of the next wait, a long one halves it. The spin time is 0, or
// between spinMin and spinMax.
func TestSpinner_Adapt(t *testing.T) {
	var p Spinner
	after := func(took time.Duration) time.Duration {
		p.adapt(took)
		return p.budget
	}
	for _, want := range []time.Duration{spinMin, 2 * spinMin, 4 * spinMin, 8 * spinMin, spinMax, spinMax} {
		assert.Equal(t, want, after(shortWait))
	}
	for want := spinMax / 2; want > spinMin/2; want /= 2 {
		assert.Equal(t, want, after(shortWait+1))
	}
	assert.Zero(t, after(shortWait+1))
	assert.Zero(t, after(shortWait+1))
	p.budget = spinMin
	assert.Zero(t, after(shortWait+1), "spinning for less is none")
}

// TestSpinner_End: a successful wait adapts the spin time, a canceled wait does not. Both uncount the spinning waiter.
func TestSpinner_End(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, over := range []bool{true, false} {
			p := Spinner{budget: spinMin}
			var s IdleTime
			require.True(t, p.Again(&s))
			require.EqualValues(t, 1, waiting.spinning.Load())
			time.Sleep(time.Microsecond)
			p.End(&s, over)
			assert.Zero(t, waiting.spinning.Load())
			want := time.Duration(spinMin)
			if over {
				want = 2 * spinMin
				assert.Zero(t, s)
			}
			assert.Equal(t, want, p.budget)
		}
	})
}

// TestUntil_Spins: after a wait that spun, no spinning waiter is counted, whether it succeeded or was canceled. Only a
// successful wait adapts the spin time.
func TestUntil_Spins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		r := newRig(t, f)
		r.ifaces[0].Retain()
		r.Spin = Spinner{budget: spinMin}
		calls := 0
		done := func() bool {
			if calls++; calls%YieldPolls == 0 {
				time.Sleep(time.Microsecond)
			}
			return calls == 4*YieldPolls
		}
		require.NoError(t, r.Until(t.Context(), done))
		assert.Zero(t, f.arms, "it does not park")
		assert.Equal(t, 2*spinMin, r.Spin.budget)
		assert.Zero(t, waiting.spinning.Load())

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range YieldPolls/2 + 1 { // the context is checked once after the first pause
			calls = 0
			require.ErrorIs(t, r.Until(ctx, done), context.Canceled)
		}
		assert.Equal(t, 2*spinMin, r.Spin.budget)
		assert.Zero(t, waiting.spinning.Load())
	})
}

// TestSpinner_SpinsInVain: a worker whose waits are a little longer than its spin time does not spin for a while after some of
// them. It continues to spin if most waits end meanwhile.
func TestSpinner_SpinsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Spinner{budget: spinMax}
		const long = spinMax + spinMax/2
		for range spinWasteMax/spinMax - 1 {
			require.Equal(t, spinMax, p.waitOf(long))
		}
		for range 4 { // they save more than two in vain cost
			require.Equal(t, 20*time.Microsecond, p.waitOf(20*time.Microsecond))
		}
		for range 3 {
			require.Equal(t, spinMax, p.waitOf(long))
		}
		assert.Zero(t, p.backoff)
		require.Equal(t, spinMax, p.waitOf(long))
		assert.Equal(t, spinBackoff, p.backoff)
		assert.Zero(t, p.waitOf(long))
		assert.Zero(t, p.waitOf(20*time.Microsecond))
		time.Sleep(spinBackoff)
		assert.Equal(t, 20*time.Microsecond, p.waitOf(20*time.Microsecond))
		assert.Zero(t, waiting.spinning.Load())
	})
}

// TestSpinner_Yielded: the time for which a spinning waiter lets other goroutines run is no preemption.
func TestSpinner_Yielded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Spinner{budget: spinMax}
		var s IdleTime
		s.Yielded()
		assert.Zero(t, s, "it does not spin")
		require.True(t, p.Again(&s))
		time.Sleep(2 * spinMax)
		s.Yielded()
		time.Sleep(spinMax - 1)
		require.True(t, p.Again(&s), "it has spun for spinMax - 1")
		p.Found(&s)
		assert.Zero(t, p.backoff)
		assert.Zero(t, p.wasted)
	})
}
