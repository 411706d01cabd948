package timelimit

import (
	"context"
	"time"
)

// timed is a context that ends as one with a deadline does, without having one.
type timed struct {
	context.Context // what Value and Deadline are
	end             context.Context
}

func (c timed) Done() <-chan struct{} { return c.end.Done() }

// Err tells the end of the time from that of the parent, and from cancel.
func (c timed) Err() error {
	err := c.end.Err()
	if err != nil && context.Cause(c.end) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return err
}

// WithTimeout is context.WithTimeout for a wait of d as New begins it. The context has no Deadline of
// its own: who is told one ends by the clock. cancel is to be called, and ends a goroutine.
func WithTimeout(parent context.Context, d time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	return within(parent, New(d), max(d/Looks, 1))
}

// within ends the context with limit, at which it looks that often.
func within(parent context.Context, limit Limit, every time.Duration) (context.Context, context.CancelFunc) {
	end, stop := context.WithCancelCause(parent)
	go func() {
		looks := time.NewTicker(every)
		defer looks.Stop()
		for !limit.Over() {
			select {
			case <-looks.C:
			case <-end.Done():
				return
			}
		}
		stop(context.DeadlineExceeded)
	}()
	return timed{parent, end}, func() { stop(nil) }
}
