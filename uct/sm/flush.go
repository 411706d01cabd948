package sm

import (
	"github.com/gucx/gucx/uct"
)

// What a call has accepted is in the peer's memory or in the ring, from where it is
// delivered even if this process dies: flushing waits for targetOps only.

// Flush implements uct.EP. ErrNoResource also when the peer has gone and Progress has not failed
// the EP yet: what was put since has reached nobody.
func (e *EP) Flush(c *uct.Completion) (bool, error) {
	switch e.state {
	case epFailed:
		return false, e.reason
	case epClosed:
		return false, uct.ErrClosed
	}
	if e.ops.empty() {
		if e.hold.Load()&holdDown != 0 {
			return false, uct.ErrNoResource
		}
		e.iface.barrier()
		return false, nil
	}
	if c == nil {
		return true, nil
	}
	if !e.ops.room() {
		return false, uct.ErrNoResource
	}
	e.add(opFlush, 0, 0, 0, c)
	e.issue()
	return true, nil
}

// barrier makes all stores visible to every CPU before it returns. The word belongs to the
// iface: one that all ifaces of a process have in common is a cache line that goes from CPU to
// CPU with each flush.
func (it *Iface) barrier() { it.fence.Add(1) }

// flushAll is Iface.Flush. ErrNoResource also where EP.Flush of one EP returns it.
func (it *Iface) flushAll(c *uct.Completion) (bool, error) {
	if it.events.Load()&eventPosted != 0 && it.anyLost() {
		return false, uct.ErrNoResource
	}
	if !it.opsWait {
		it.barrier()
		return false, nil
	}
	busy := 0
	for _, e := range it.open.All() {
		switch {
		case e.ops.empty():
			continue
		case c != nil && !e.ops.room():
			return false, uct.ErrNoResource
		}
		busy++
	}
	if busy == 0 || c == nil {
		return busy > 0, nil
	}
	g := it.groups.Get(c, busy)
	for _, e := range it.open.All() {
		if !e.ops.empty() {
			e.add(opFlush, 0, 0, 0, g)
			e.issue()
		}
	}
	return true, nil
}

// anyLost reports that a peer has gone and Progress has not failed its EPs yet.
func (it *Iface) anyLost() bool {
	for _, l := range it.links {
		if l.isLost() {
			return true
		}
	}
	return false
}

// collect takes answers on all EPs. Completions may close EPs, whose places in the
// list those at its end take: it goes backwards, so that none is missed. What
// completions post sets opsWait.
func (it *Iface) collect() (n int) {
	it.opsWait = false
	for i := it.open.Len() - 1; i >= 0; i-- {
		if i >= it.open.Len() {
			continue
		}
		e := it.open.All()[i]
		n += e.collectOps()
		it.opsWait = it.opsWait || !e.ops.empty()
	}
	return n
}
