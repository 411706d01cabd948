package threads

import (
	"context"
	"fmt"
	"sync"
)

// inParallel runs f for 0..n-1, each in a goroutine of its own. wait waits for all of them and
// returns the first error, which has ended the context of the others.
func inParallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) (wait func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	var once sync.Once
	var first error
	for i := range n {
		all.Go(func() {
			if err := f(ctx, i); err != nil {
				once.Do(func() { first = fmt.Errorf("thread %d: %w", i, err) })
				cancel(err)
			}
		})
	}
	return func() error {
		all.Wait()
		cancel(nil)
		return first
	}
}
