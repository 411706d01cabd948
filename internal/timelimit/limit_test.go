package timelimit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// looks counts the looks, with pauses between them, until a wait is over.
func looks(l Limit, pause time.Duration) (n int) {
	for {
		time.Sleep(pause)
		if n++; l.Over() {
			return n
		}
	}
}

// TestNew_LooksAtLeast: a wait takes its time where it is looked at often enough, and ten looks where
// the process stands still between them.
func TestNew_LooksAtLeast(t *testing.T) {
	for _, tc := range []struct {
		pause time.Duration
		looks int
	}{{time.Millisecond, 1000}, {100 * time.Millisecond, 10}, {2 * time.Second, 10}, {time.Hour, 10}} {
		t.Run(tc.pause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				assert.Equal(t, tc.looks, looks(New(time.Second), tc.pause))
			})
		})
	}
}

// TestWithMost_CountsNoMore: stands longer than the bound count as the bound.
func TestWithMost_CountsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 20 * time.Millisecond
		assert.Equal(t, 500, looks(WithMost(time.Second, most), 2*time.Millisecond))
		assert.Equal(t, 50, looks(WithMost(time.Second, most), most))
		assert.Equal(t, 50, looks(WithMost(time.Second, most), time.Hour))
		assert.Equal(t, 1, looks(WithMost(most, time.Second), most), "a bound above the whole bounds nothing")
		assert.Equal(t, 10, looks(WithMost(10, 0), time.Hour), "the least bound is 1 ns")
	})
}

// TestAt_BeganBefore: what has passed since counts as a stand.
func TestAt_BeganBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := At(Now()-time.Hour, time.Second, time.Second/2)
		assert.False(t, l.Over())
		assert.False(t, l.Over(), "nothing has passed")
		time.Sleep(time.Second / 2)
		assert.True(t, l.Over())
		assert.True(t, l.Over(), "it stays over")
	})
}

// TestCount_AnyClock: also one that begins elsewhere, and with a bound that changes.
func TestCount_AnyClock(t *testing.T) {
	const start = -1000 * time.Hour
	l := At(start, 10, 1)
	assert.False(t, l.Count(start, 1))
	assert.False(t, l.Count(start+100, 3))
	assert.False(t, l.Count(start+200, 6))
	assert.True(t, l.Count(start+201, 6))
}

// TestLimit_Zero: it is no wait.
func TestLimit_Zero(t *testing.T) {
	var none Limit
	assert.False(t, none.Waits())
	some := New(1)
	assert.True(t, some.Waits())
}
