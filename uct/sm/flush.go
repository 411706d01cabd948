package sm

import (
	"sync/atomic"

	"github.com/gucx/gucx/uct"
)

// What a call has accepted is in the peer's memory or in the ring, from where it is
// delivered even if this process dies: flushing waits for asks only.

// Flush implements uct.EP.
func (e *EP) Flush(c *uct.Completion) (bool, error) {
	if e.state == epFailed {
		return false, e.reason
	}
	if e.asks.empty() {
		barrierBefore()
		return false, nil
	}
	if c == nil {
		return true, nil
	}
	if !e.asks.room() {
		return false, uct.ErrNoResource
	}
	e.asks.add(askFlush, 0, 0, 0, c)
	e.issue()
	return true, nil
}

// fence is what barrierBefore exchanges.
var fence atomic.Uint32

// barrierBefore makes all stores visible to every CPU before it returns.
func barrierBefore() { fence.Add(1) }

// flushGroup completes when the flushes of several EPs have.
type flushGroup struct {
	uct.Completion
	user *uct.Completion
}

// flushAll is Iface.Flush.
func (it *Iface) flushAll(c *uct.Completion) (bool, error) {
	if !it.asking {
		barrierBefore()
		return false, nil
	}
	var g *flushGroup
	for _, e := range it.open.All() {
		if e.asks.empty() {
			continue
		}
		if c == nil {
			return true, nil
		}
		if !e.asks.room() {
			return false, uct.ErrNoResource
		}
	}
	for _, e := range it.open.All() {
		if e.asks.empty() {
			continue
		}
		if g == nil {
			g = &flushGroup{user: c}
			g.Func = func(d *uct.Completion) { g.user.Complete(d.Status) }
		}
		g.Count++
		e.asks.add(askFlush, 0, 0, 0, &g.Completion)
		e.issue()
	}
	return g != nil, nil
}

// collect takes answers on all EPs.
func (it *Iface) collect() (n int) {
	it.asking = false
	list := it.open.All()
	for i := 0; i < len(list); i++ {
		e := list[i]
		if e.asks.empty() {
			continue
		}
		n += e.collectAsks()
		list = it.open.All() // completions may have closed EPs
		it.asking = it.asking || !e.asks.empty()
	}
	return n
}
