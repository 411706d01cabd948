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

// waitOf has a waiter wait for d, in rounds of a microsecond while it polls, and returns
// for how long it polled.
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

// TestSpinner_LearnsWhatPays: a worker whose waits are short spins through them, one whose
// waits are long parks at once, and each becomes the other.
func TestSpinner_LearnsWhatPays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Spinner
		assert.Zero(t, p.waitOf(20*time.Microsecond), "the first wait tells how long it takes")
		for range 8 {
			p.waitOf(20 * time.Microsecond)
		}
		assert.Equal(t, 20*time.Microsecond, p.waitOf(20*time.Microsecond))
		assert.Equal(t, spinMost, p.waitOf(time.Second), "never longer than that")
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

// TestSpinner_RestsWhenStolenFrom: a waiter whose processor went to somebody else while it
// was polling does not spin for a while, which grows while that happens again soon.
func TestSpinner_RestsWhenStolenFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slack = 12 * time.Microsecond
		p := Spinner{budget: spinMost}
		rests := func() time.Duration {
			var s IdleTime
			require.True(t, p.Again(&s))
			time.Sleep(spinPreempted)
			require.False(t, p.Again(&s))
			s.park()
			at := clock()
			for p.waitOf(slack/3) == 0 {
			}
			return clock() - at
		}
		assert.InDelta(t, spinRest, rests(), float64(slack))
		assert.InDelta(t, 2*spinRest, rests(), float64(slack))
		assert.InDelta(t, 4*spinRest, rests(), float64(slack))
		for range 10 {
			rests()
		}
		assert.InDelta(t, spinRestMost, rests(), float64(slack))
		time.Sleep(time.Minute)
		assert.InDelta(t, spinRest, rests(), float64(slack))
	})
}

// TestSpinner_RestEnds: a waiter spins again as soon as the rest is over, and not before.
func TestSpinner_RestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Spinner{budget: spinMost, rest: spinRest, until: clock() + spinRest}
		time.Sleep(spinRest - 1)
		assert.False(t, p.Again(&IdleTime{}))
		time.Sleep(time.Nanosecond)
		var s IdleTime
		assert.True(t, p.Again(&s))
		s.park()
	})
}

// TestSpinner_EndlessOffers: a waiter that never sleeps offers its processor to other processes, as one that spins for
// a while does.
func TestSpinner_EndlessOffers(t *testing.T) {
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

// TestSpinner_Fixed: a number of polls is what it says, and a negative one has no end.
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

// TestSpinner_OffersTheProcessor: a waiter that spins offers its processor to others once in spinYield, and
// not before it has spun for that long.
func TestSpinner_OffersTheProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Spinner{budget: spinMost}
		var s IdleTime
		var offers []time.Duration
		for range spinMost / time.Microsecond {
			before := s.yielded
			require.True(t, p.Again(&s))
			if before != 0 && s.yielded != before {
				offers = append(offers, s.yielded-s.since)
			}
			time.Sleep(time.Microsecond)
		}
		assert.False(t, p.Again(&s))
		assert.Zero(t, p.rest, "no round took long")
		var want []time.Duration
		for at := spinYield; at < spinMost; at += spinYield {
			want = append(want, at)
		}
		assert.Equal(t, want, offers)
	})
}

// TestWaiters_LeaveAProcessor: while goroutines are parked, not every processor spins.
func TestWaiters_LeaveAProcessor(t *testing.T) {
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

// TestSpinner_Learn: a short wait doubles the time that the next one may spin, a long one halves it,
// between none, spinLeast and spinMost.
func TestSpinner_Learn(t *testing.T) {
	var p Spinner
	after := func(took time.Duration) time.Duration {
		p.adapt(took)
		return p.budget
	}
	for _, want := range []time.Duration{spinLeast, 2 * spinLeast, 4 * spinLeast, 8 * spinLeast, 16 * spinLeast, spinMost, spinMost} {
		assert.Equal(t, want, after(spinPays))
	}
	for want := spinMost / 2; want > spinLeast/2; want /= 2 {
		assert.Equal(t, want, after(spinPays+1))
	}
	assert.Zero(t, after(spinPays+1))
	assert.Zero(t, after(spinPays+1))
	p.budget = spinLeast
	assert.Zero(t, after(spinPays+1), "spinning for less is none")
}

// TestSpinner_End: a wait that is over is one to learn from, one that was given up is not. Neither counts
// as a waiter that spins any more.
func TestSpinner_End(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, over := range []bool{true, false} {
			p := Spinner{budget: spinLeast}
			var s IdleTime
			require.True(t, p.Again(&s))
			require.EqualValues(t, 1, waiting.spinning.Load())
			time.Sleep(time.Microsecond)
			p.End(&s, over)
			assert.Zero(t, waiting.spinning.Load())
			want := time.Duration(spinLeast)
			if over {
				want = 2 * spinLeast
				assert.Zero(t, s)
			}
			assert.Equal(t, want, p.budget)
		}
	})
}

// TestUntil_Spins: a wait that spins, and is over or given up, leaves no waiter that counts as spinning,
// and its worker learns from the former.
func TestUntil_Spins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		r := newRig(t, f)
		r.ifaces[0].Retain()
		r.Spin = Spinner{budget: spinLeast}
		calls := 0
		done := func() bool {
			if calls++; calls%YieldPolls == 0 {
				time.Sleep(time.Microsecond)
			}
			return calls == 4*YieldPolls
		}
		require.NoError(t, r.Until(t.Context(), done))
		assert.Zero(t, f.arms, "it does not park")
		assert.Equal(t, 2*spinLeast, r.Spin.budget)
		assert.Zero(t, waiting.spinning.Load())

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range YieldPolls/2 + 1 { // the context is looked at after the first pause, once
			calls = 0
			require.ErrorIs(t, r.Until(ctx, done), context.Canceled)
		}
		assert.Equal(t, 2*spinLeast, r.Spin.budget)
		assert.Zero(t, waiting.spinning.Load())
	})
}
