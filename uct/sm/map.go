package sm

import "github.com/gucx/gucx/uct"

// Map implements uct.Mapper. The bytes are in a reference-counted mapping of the peer's arena, which remains after the
// link is closed. The file cannot shrink, and memory that the peer frees reads as
// zeros or as later allocations of the peer: no access faults.
func (e *endpoint) Map(raddr uint64, n int, key uct.RKey) ([]byte, func(), error) {
	if !e.ready() {
		return nil, nil, e.postError()
	}
	off, ok := e.offset(uint64(key), raddr, uint64(n))
	if !ok && e.mapMore(uint64(key), raddr, uint64(n), uct.AccessRemoteRead) {
		off, ok = e.offset(uint64(key), raddr, uint64(n))
	}
	switch {
	case ok:
	case e.isUnmapped(uint64(key), raddr, uint64(n), uct.AccessRemoteRead):
		return nil, nil, uct.ErrUnsupported
	default:
		return nil, nil, e.accessError()
	}
	seg := e.arenaSeg.Clone()
	unmap := func() { _ = seg.Close() } // cannot fail
	return seg.Bytes()[off : off+n : off+n], unmap, nil
}

// offset returns the offset in the mapped arena of a range that the key permits to read.
func (l *outLink) offset(key, raddr, n uint64) (off int, ok bool) {
	idle := l.enter(key)
	p := l.mapped(key, raddr, n, uct.AccessRemoteRead)
	l.guard.Leave(idle)
	if p == nil {
		return 0, false
	}
	return int(uintptr(p) - uintptr(l.arena)), true // both are in one mapping, which mapped has checked
}
