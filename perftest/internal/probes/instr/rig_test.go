package instr

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/testenv"
)

// TestPolls_WaitUntilPatienceEnds: what others have to do for a handshake may take a busy machine long,
// and no number of polls bounds it; a hang ends.
func TestPolls_WaitUntilPatienceEnds(t *testing.T) {
	testenv.SkipRace(t, "one goroutine, and a great many looks at the clock")
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

// TestSteps_VoidBefore: an operation that cannot be prepared is not counted, and is no error.
func TestSteps_VoidBefore(t *testing.T) {
	s := steps{before: func() error { return errVoid }, op: func() error { t.Error("executed"); return nil }}
	assert.Equal(t, errVoid, s.once(func() { t.Error("counted") }, func(bool) {}))
}
