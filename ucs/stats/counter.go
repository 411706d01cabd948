package stats

import "sync/atomic"

// Counter counts events or bytes. The zero value is 0. One goroutine at a time, the
// owner of what is counted, calls Inc and Add; any may call Load.
type Counter struct{ n uint64 }

// Inc adds 1.
func (c *Counter) Inc() { c.Add(1) }

// Load is the value; from another goroutine, perhaps that of a moment ago.
func (c *Counter) Load() uint64 { return atomic.LoadUint64(&c.n) }
