package timelimit

import (
	"context"
	"time"
)

// timed is a context that ends with context.DeadlineExceeded, but has no Deadline of its own.
type timed struct {
	context.Context // the parent: Value and Deadline
	end             context.Context
}

func (c timed) Done() <-chan struct{} { return c.end.Done() }

// Err returns context.DeadlineExceeded if the limit was reached, otherwise the error of end.
func (c timed) Err() error {
	err := c.end.Err()
	if err != nil && context.Cause(c.end) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return err
}

// WithTimeout is context.WithTimeout with a limit of New. The context has no Deadline of its own, because a
// callee with a deadline would wait by the clock. The caller must call cancel, which stops a goroutine.
func WithTimeout(parent context.Context, d time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	return within(parent, New(d), max(d/Looks, 1))
}

// within ends the context when limit is reached, which it checks at that interval.
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
