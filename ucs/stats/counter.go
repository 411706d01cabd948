package stats

import "sync/atomic"

// Counter counts events or bytes. The zero value is 0. Only one goroutine at a time, the owner of the counted object, may call
// Inc and Add. Any goroutine may call Load.
type Counter struct{ n uint64 }

// Inc adds 1.
func (c *Counter) Inc() { c.Add(1) }

// Load returns the value. In another goroutine than the owner's the value may be slightly out of date.
func (c *Counter) Load() uint64 { return atomic.LoadUint64(&c.n) }
