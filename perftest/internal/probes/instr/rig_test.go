package instr

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/testenv"
)

// TestPolls_WaitUntilPatienceEnds: on a busy machine the other side of a handshake may need long, so the number of
// polls has no limit; a hang ends after patience.
func TestPolls_WaitUntilPatienceEnds(t *testing.T) {
	testenv.SkipRace(t, "one goroutine, which reads the clock very often")
	synctest.Test(t, func(t *testing.T) {
		start, done := time.Now(), false
		for range polls {
			if done = time.Since(start) > patience/2; done {
				break
			}
		}
		assert.True(t, done)
		for range polls {
			done = time.Since(start) > 2*patience
		}
		assert.False(t, done)
	})
}

// TestSteps_VoidBefore: an operation that cannot be prepared is not counted, and is not an error.
func TestSteps_VoidBefore(t *testing.T) {
	s := steps{before: func() error { return errVoid }, op: func() error { t.Error("executed"); return nil }}
	assert.Equal(t, errVoid, s.once(func() { t.Error("counted") }, func(bool) {}))
}
