package mlx5

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// ErrConcurrentPost is the error of a post in a thread domain while another goroutine posts there:
// goroutines must not use queues without locks at the same time. Only builds with the race
// detector check it. It wraps ErrBusy.
var ErrConcurrentPost = fmt.Errorf("another goroutine posts in its thread domain: %w", ucs.ErrBusy)
