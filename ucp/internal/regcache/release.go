package regcache

import (
	"slices"

	"github.com/gucx/gucx/ucs"
)

// Purge deregisters what no operation uses, and tries again what could not be deregistered
// before. What is in use stays. The error is that of deregistering, and those entries are
// found no more.
func (c *Cache[M]) Purge() error {
	for c.idle.back != nil {
		c.hide(c.idle.back)
	}
	_, err := c.settle(everywhere)
	return err
}

// Invalidate has no entry with a byte of memory be found any more, and deregisters those
// that no operation uses. nil says that none is left: the memory may be unmapped. ErrBusy,
// also joined with others, says that operations use some, which their last Put
// deregisters; other errors are those of deregistering. Then call it again.
func (c *Cache[M]) Invalidate(memory []byte) error {
	if len(memory) == 0 {
		return nil
	}
	return c.invalidate(spanOf(memory))
}

// Close deregisters all. ErrBusy, also joined with others, says that operations use some,
// which their last Put deregisters; other errors are those of deregistering. Then call it
// again: nil says that none is left. Get finds nothing any more and returns ErrClosed.
func (c *Cache[M]) Close() error {
	c.closed = true
	return c.invalidate(everywhere)
}

// everywhere is all memory.
var everywhere = span{0, ^uintptr(0)}

// invalidate is Invalidate for a range that is not empty.
func (c *Cache[M]) invalidate(s span) error {
	for access := range c.indexes {
		for _, e := range c.indexes[access].overlapping(s) {
			c.hide(e)
		}
	}
	busy, err := c.settle(s)
	if busy {
		return ucs.Join(ucs.ErrBusy, err)
	}
	return err
}

// settle deregisters what is leaving and has a byte in s. busy says that some of it is in use.
func (c *Cache[M]) settle(s span) (busy bool, err error) {
	var errs []error
	for _, e := range slices.Backward(c.leaving) { // release takes e out
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

// hide has Get not find e any more, which is indexed.
func (c *Cache[M]) hide(e *Entry[M]) {
	c.indexes[e.access].remove(e)
	c.leave(e)
}

// leave is hide for an entry that its index has lost already.
func (c *Cache[M]) leave(e *Entry[M]) {
	if e.users == 0 {
		c.idle.remove(e)
	}
	e.indexed = false
	c.leaving = append(c.leaving, e)
}

// release deregisters e, which is leaving and not in use. After an error it is still
// leaving, for settle.
func (c *Cache[M]) release(e *Entry[M]) error {
	if err := e.Mem.Close(); err != nil {
		return err
	}
	e.buf = nil // and not before: the memory must not become another object's
	i := slices.Index(c.leaving, e)
	c.leaving = slices.Delete(c.leaving, i, i+1)
	return nil
}

// trim deregisters what is idle beyond the bounds.
func (c *Cache[M]) trim() {
	for c.idle.bytes > c.maxSize || c.idle.count > c.maxRegions {
		c.evict(c.idle.back)
	}
}

// evict deregisters e, which is idle. If that does not succeed, settle tries again.
func (c *Cache[M]) evict(e *Entry[M]) {
	c.evictions.Inc()
	c.hide(e)
	_ = c.release(e)
}
