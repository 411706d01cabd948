package xrcdomain

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/timelimit"
)

// TestWait_ProcessStopped: wait returns a descriptor that has arrived, although its time is over.
func TestWait_ProcessStopped(t *testing.T) {
	for range 100 {
		r := requests{pending: 3, responses: make(chan response, 3)}
		r.responses <- response{fd: -1}
		r.responses <- response{fd: 7}
		if !assert.Equal(t, 7, r.wait(0)) {
			return
		}
		assert.Equal(t, -1, r.wait(0))
		assert.Equal(t, 1, r.pending, "pending requests")
	}
}

// TestWaitLast_ProcessStopped: time during which the process is stopped does not count, but the wait ends.
func TestWaitLast_ProcessStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stood := func() timelimit.Limit {
			return timelimit.At(timelimit.Now()-time.Hour, responseTimeout, responseTimeout/timelimit.Looks)
		}
		r := requests{pending: 2, responses: make(chan response, 2)}
		go func() {
			time.Sleep(responseTimeout / 2)
			r.responses <- response{fd: 7}
		}()
		assert.Equal(t, 7, r.waitLast(stood()))
		start := timelimit.Now()
		assert.Equal(t, -1, r.waitLast(timelimit.New(responseTimeout)))
		assert.Equal(t, responseTimeout, timelimit.Now()-start)
		r.responses <- response{fd: -1}
		assert.Equal(t, -1, r.waitLast(stood()))
		assert.Equal(t, responseTimeout, timelimit.Now()-start, "time of the wait")
	})
}
