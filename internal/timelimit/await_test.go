package timelimit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestAwait_Done: as soon as it is done, without a sleep at first.
func TestAwait_Done(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := Now()
		for n := range yields {
			calls := 0
			assert.True(t, Await(time.Second, func() bool { calls++; return calls > n }))
			assert.Equal(t, n+1, calls)
		}
		assert.Equal(t, start, Now())
		assert.True(t, Await(time.Second, func() bool { return Now()-start >= time.Second/2 }))
		assert.Less(t, Now()-start, time.Second/2+pauseMax)
	})
}

// TestAwait_Never: it takes its time, and not much more.
func TestAwait_Never(t *testing.T) {
	for _, d := range []time.Duration{pauseMin, 200 * time.Microsecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := Now()
			assert.False(t, Await(d, func() bool { return false }))
			assert.GreaterOrEqual(t, Now()-start, d)
			assert.Less(t, Now()-start, d+pauseMax)
		})
	}
}

// TestAwait_SuspendedProcess: a process that is suspended, also between the check and the clock, continues to wait.
func TestAwait_SuspendedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for stand := range 5 {
			calls := 0
			assert.True(t, Await(time.Second, func() bool {
				if calls++; calls > yields && calls <= yields+stand {
					time.Sleep(time.Hour)
				}
				return calls > yields+50
			}), "%d stands", stand)
		}
		calls := 0
		assert.False(t, Await(time.Second, func() bool { calls++; time.Sleep(time.Hour); return false }))
		assert.Equal(t, yields+int(time.Second/pauseMost), calls, "not for ever")
	})
}

// TestPoll_SuspendedProcess: rounds that find something go on, and so does a process that stood still.
func TestPoll_SuspendedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := 0
		stand := func(n int) func() int {
			return func() int { rounds++; time.Sleep(time.Hour); return n }
		}
		never := func() bool { return false }
		limit := New(time.Second)
		assert.True(t, limit.Poll(func() bool { return rounds == 100 }, stand(1)))
		assert.True(t, limit.Poll(func() bool { return rounds == 100+Looks/2 }, stand(0)))
		assert.False(t, limit.Poll(never, stand(0)))
		assert.Equal(t, 100+Looks, rounds)
		assert.False(t, limit.Poll(never, stand(0)), "no time is left")
		assert.True(t, limit.Poll(func() bool { return true }, nil))
	})
}
