package guard

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/ucs"
)

// TestAwaitUse: what is in use is tried again until it is not, for RevokeLimit at most.
func TestAwaitUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries := time.Now(), 0
		inUse := &ucs.InUseError{PIDs: []int{3, 7}}
		for _, last := range []error{nil, errors.New("another")} {
			tries = 0
			assert.Equal(t, last, AwaitUse(func() error {
				if tries++; tries < 5 {
					return inUse
				}
				return last
			}))
			assert.Equal(t, 5, tries)
		}
		assert.Less(t, time.Since(start), ucs.RevokeLimit)
		start = time.Now()
		assert.Equal(t, error(inUse), AwaitUse(func() error { return inUse }))
		assert.GreaterOrEqual(t, time.Since(start), ucs.RevokeLimit)
		assert.EqualError(t, inUse, "memory is in use by process 3, 7: operation timed out")
	})
}

// TestAwaitUse_ProcessStood: the time in which the process stands still is no time that it waited.
func TestAwaitUse_ProcessStood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for stand := 1; stand < 200; stand++ {
			tries := 0
			assert.NoError(t, AwaitUse(func() error {
				if tries++; tries == stand {
					time.Sleep(2 * ucs.RevokeLimit)
				}
				if tries < stand+10 {
					return &ucs.InUseError{}
				}
				return nil
			}), "at try %d", stand)
		}
	})
}
