package self

import (
	"os"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/internal/memop"
)

// Close implements uct.Mem. It does not wait for operations on allocated memory: an operation
// keeps the memory alive, so that it is not reused.
func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	md := m.md
	md.regions.Store(uint32(m.region.key&memop.KeyIndexMask), nil)
	if m.pin != nil {
		owner := guard.Owner{Links: &md.mu}
		if inside := owner.Await(md.visits(), ucs.RevokeLimit); len(inside) > 0 {
			return &ucs.OpError{TL: Name, Op: "deregister memory", Err: guard.InUse(inside)}
		}
	}
	m.closed = true
	md.mu.Lock()
	md.keyIndexes.Free(m.region.key)
	md.mu.Unlock()
	if m.pin != nil {
		m.pin.Unpin()
	}
	md.users.Drop()
	return nil
}

// anyRegion is the region in the guards for all memory. Operations are so short that Close can also wait for
// those on other memory.
const anyRegion = 1

// visits returns the operations in progress that may access memory whose key has just become
// invalid. Later operations see that the key is invalid.
func (md *domain) visits() (all []guard.Visit) {
	if expedited() {
		barrier() // pairs with guard.Word.Enter
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	for it := range md.ifaces {
		if v, region := guard.Look(thisProcess{}, &it.guard); region != 0 {
			all = append(all, v)
		}
	}
	return all
}

// thisProcess is the only visitor. Its guards are always mapped.
type thisProcess struct{}

func (thisProcess) Present() bool { return true }
func (thisProcess) PID() int      { return os.Getpid() }
