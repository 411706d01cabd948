package engine

import (
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
		p := Spinner{budget: spinMost}
		rests := func() time.Duration {
			var s IdleTime
			require.True(t, p.Again(&s))
			time.Sleep(spinPreempted)
			require.False(t, p.Again(&s))
			s.park()
			at := clock()
			for p.waitOf(time.Microsecond) == 0 {
			}
			return clock() - at
		}
		const slack = 10 * time.Microsecond
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

// TestSpinner_Fixed: a number of polls is what it says, and a negative one has no end.
func TestSpinner_Fixed(t *testing.T) {
	p := Spinner{Fixed: 128}
	assert.True(t, p.Again(&IdleTime{Polls: 127}))
	assert.False(t, p.Again(&IdleTime{Polls: 128}))
	p.Fixed = -1
	assert.True(t, p.Again(&IdleTime{Polls: 1 << 40}))
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
}
