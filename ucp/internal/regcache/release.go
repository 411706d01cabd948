package regcache

import (
	"slices"

	"github.com/gucx/gucx/ucs"
)

// Purge deregisters all entries that no operation uses, and retries those that could not be deregistered
// before. It does not change entries in use. It returns the errors of deregistering; the entries concerned are no longer
// in the index.
func (c *Cache[M]) Purge() error {
	for c.idle.back != nil {
		c.hide(c.idle.back)
	}
	_, err := c.deregisterLeaving(everywhere)
	return err
}

// Invalidate removes all entries that have a byte of memory from the index, and deregisters those
// that no operation uses. If it returns nil, none is registered any more: the caller may unmap the memory. ErrBusy,
// possibly joined with others, means that operations use some, which their last Put
// deregisters; other errors are those of deregistering. After an error call it again.
func (c *Cache[M]) Invalidate(memory []byte) error {
	if len(memory) == 0 {
		return nil
	}
	return c.invalidate(spanOf(memory))
}

// Close deregisters all entries. ErrBusy, possibly joined with others, means that operations use some,
// which their last Put deregisters; other errors are those of deregistering. After an error call it
// again. From the first call on Get returns ErrClosed.
func (c *Cache[M]) Close() error {
	c.closed = true
	return c.invalidate(everywhere)
}

// everywhere is the range of all memory.
var everywhere = span{0, ^uintptr(0)}

// invalidate implements Invalidate for a range that is not empty.
func (c *Cache[M]) invalidate(s span) error {
	for access := range c.indexes {
		for _, e := range c.indexes[access].overlapping(s) {
			c.hide(e)
		}
	}
	busy, err := c.deregisterLeaving(s)
	if busy {
		return ucs.Join(ucs.ErrBusy, err)
	}
	return err
}

// deregisterLeaving deregisters the leaving entries that have a byte in s. busy means that some are in use.
func (c *Cache[M]) deregisterLeaving(s span) (busy bool, err error) {
	var errs []error
	for _, e := range slices.Backward(c.leaving) { // release removes e
		switch {
		case !e.overlaps(s):
		case e.users > 0:
			busy = true
		default:
			errs = append(errs, c.release(e))
		}
	}
	return busy, ucs.Join(errs...)
}

// hide removes e from the index.
func (c *Cache[M]) hide(e *Entry[M]) {
	c.indexes[e.access].remove(e)
	c.leave(e)
}

// leave implements hide for an entry that is no longer in the index.
func (c *Cache[M]) leave(e *Entry[M]) {
	if e.users == 0 {
		c.idle.remove(e)
	}
	e.indexed = false
	c.leaving = append(c.leaving, e)
}

// release deregisters e, which must be leaving and unused. After an error e is still leaving, and deregisterLeaving
// retries.
func (c *Cache[M]) release(e *Entry[M]) error {
	if err := e.Mem.Close(); err != nil {
		return err
	}
	e.buf = nil // not earlier: the memory must not become another object
	i := slices.Index(c.leaving, e)
	c.leaving = slices.Delete(c.leaving, i, i+1)
	return nil
}

// trim deregisters idle entries until the limits are met.
func (c *Cache[M]) trim() {
	for c.idle.bytes > c.maxSize || c.idle.count > c.maxRegions {
		c.evict(c.idle.back)
	}
}

// evict deregisters e, which is idle. After an error deregisterLeaving retries.
func (c *Cache[M]) evict(e *Entry[M]) {
	c.evictions.Inc()
	c.hide(e)
	_ = c.release(e)
}
