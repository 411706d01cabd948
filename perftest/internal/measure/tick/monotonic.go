//go:build !arm64

package tick

import "time"

var base = time.Now()

// monotonic is the portable counter: nanoseconds of the monotonic clock.
func monotonic() uint64 { return uint64(time.Since(base)) }
