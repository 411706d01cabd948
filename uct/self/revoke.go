package self

import (
	"os"
	"slices"

	"github.com/gucx/gucx/internal/timelimit"
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
	if m.pin != nil && !outlast(md.visits()) {
		return &ucs.OpError{TL: Name, Op: "deregister memory", Err: &ucs.InUseError{PIDs: []int{os.Getpid()}}}
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

// visits are the operations under way that may be in memory whose key has just become
// void. Those that begin later find it so.
func (md *MD) visits() (all []visit) {
	if expedited() {
		barrier() // pairs with guard.enter
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	for it := range md.ifaces {
		if v := it.guard.word.Load(); v&1 == 1 {
			all = append(all, visit{&it.guard, v})
		}
	}
	return all
}

// outlast waits until the visits have ended; false if one has not within
// ucs.RevokeLimit.
func outlast(all []visit) bool {
	return timelimit.Await(ucs.RevokeLimit, func() bool {
		all = slices.DeleteFunc(all, visit.over)
		return len(all) == 0
	})
}
