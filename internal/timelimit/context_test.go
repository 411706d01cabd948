package timelimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestWithTimeout_TimesOut: the context ends at its limit, and its children have the cause.
func TestWithTimeout_TimesOut(t *testing.T) {
	for _, d := range []time.Duration{-1, 0, 1, 10 * time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := Now()
			ctx, cancel := WithTimeout(t.Context(), d)
			defer cancel()
			child, end := context.WithCancel(ctx)
			defer end()
			<-child.Done()
			assert.Equal(t, max(d, 0), Now()-start)
			assert.Equal(t, context.DeadlineExceeded, ctx.Err())
			assert.Equal(t, context.DeadlineExceeded, child.Err())
		})
	}
}

// TestWithTimeout_CanceledOrParentDone: by cancel, and by its parent.
func TestWithTimeout_CanceledOrParentDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		ctx, cancel := WithTimeout(parent, time.Minute)
		assert.NoError(t, ctx.Err())
		cancel()
		<-ctx.Done()
		assert.Equal(t, context.Canceled, ctx.Err())
		assert.NoError(t, parent.Err())

		ctx, cancel = WithTimeout(parent, time.Minute)
		defer cancel()
		start := Now()
		<-ctx.Done()
		assert.Equal(t, time.Second, Now()-start)
		assert.Equal(t, context.DeadlineExceeded, ctx.Err())
	})
}

// TestWithTimeout_SuspendedProcess: a stand counts a tenth.
func TestWithTimeout_SuspendedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := Now()
		ctx, cancel := within(t.Context(), At(start-time.Hour, time.Second, time.Second/Looks), time.Second/Looks)
		defer cancel()
		<-ctx.Done()
		assert.Equal(t, time.Second-time.Second/Looks, Now()-start)
	})
}
