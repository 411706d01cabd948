package xrcdomain

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
)

// TestRetryLock: retryLock tries until the lock is free, or for lockTimeout; time during which the process is
// stopped does not count.
func TestRetryLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for stand := 1; stand < 200; stand++ {
			tries := 0
			assert.NoError(t, retryLock("lock", func() error {
				if tries++; tries == stand {
					time.Sleep(2 * lockTimeout)
				}
				if tries < stand+10 {
					return unix.EAGAIN
				}
				return nil
			}), "at try %d", stand)
		}
		assert.ErrorIs(t, retryLock("lock", func() error { return unix.EBADF }), unix.EBADF)
		start := timelimit.Now()
		assert.ErrorIs(t, retryLock("lock", func() error { return unix.EACCES }), ucs.ErrTimedOut)
		assert.GreaterOrEqual(t, timelimit.Now()-start, lockTimeout)
	})
}
