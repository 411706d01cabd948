package self

import (
	"os"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/internal/memop"
)

// Close implements uct.Mem. Allocated memory is not waited for: an operation that is in
// it keeps it alive, and nobody else gets it meanwhile.
func (m *Mem) Close() error {
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
	md.places.Give(m.region.key)
	md.mu.Unlock()
	if m.pin != nil {
		m.pin.Unpin()
	}
	md.users.Drop()
	return nil
}

// anyRegion is in the guards for all memory. An operation is so short that closing memory can wait for
// those on other memory too.
const anyRegion = 1

// visits are the operations under way that may be in memory whose key has just become
// void. Those that begin later find it so.
func (md *MD) visits() (all []guard.Visit) {
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
