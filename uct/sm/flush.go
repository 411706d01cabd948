package sm

import (
	"github.com/gucx/gucx/uct"
)

// An accepted put is in the peer's memory, and an accepted message is in the ring, from where it is
// delivered even if this process dies. So a flush only waits for targetOps.

// Flush implements uct.EP. It also returns ErrNoResource if the peer is gone and Progress has not failed
// the EP yet, because later puts have not reached the peer.
func (e *endpoint) Flush(c *uct.Completion) (bool, error) {
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

// barrier makes all stores visible to every CPU before it returns. Each iface has its own
// word, because a cache line that all ifaces of a process share would move between CPUs with each flush.
func (it *iface) barrier() { it.fence.Add(1) }

// flushAll is Iface.Flush. It returns ErrNoResource if EP.Flush of one EP does.
func (it *iface) flushAll(c *uct.Completion) (bool, error) {
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

// anyLost reports whether a peer is gone and Progress has not failed its EPs yet.
func (it *iface) anyLost() bool {
	for _, l := range it.links {
		if l.isLost() {
			return true
		}
	}
	return false
}

// collect handles replies for all EPs. A completion may close an EP; then the last EP of the
// list moves to its index, so the loop runs backwards to miss none. Completions that
// post operations set opsWait.
func (it *iface) collect() (n int) {
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
