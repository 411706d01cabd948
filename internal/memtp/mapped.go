package memtp

import "github.com/gucx/gucx/uct"

// GetMapped implements uct.MappedGetter. It returns false while operations are outstanding.
func (e *EP) GetMapped(buf []byte, raddr uint64, key uct.RKey) bool {
	if e.free() != nil || e.tx.n > 0 {
		return false
	}
	if len(buf) == 0 {
		return true
	}
	w := e.iface.world
	w.mu.Lock()
	defer w.mu.Unlock()
	src := w.reach(key, raddr, len(buf), uct.AccessRemoteRead)
	copy(buf, src)
	return src != nil
}

// Map implements uct.Mapper. It returns the region itself, which is Go memory.
func (e *EP) Map(raddr uint64, n int, key uct.RKey) ([]byte, func(), error) {
	if err := e.free(); err != nil {
		return nil, nil, err
	}
	w := e.iface.world
	w.mu.Lock()
	defer w.mu.Unlock()
	mem := w.reach(key, raddr, n, uct.AccessRemoteRead)
	if mem == nil {
		return nil, nil, e.iface.md.fail("map", uct.ErrRemoteAccess)
	}
	return mem[:n:n], func() {}, nil
}
