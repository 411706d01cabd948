package sm

import "github.com/gucx/gucx/uct"

// Map implements uct.Mapper. The bytes are in a mapping of the peer's arena that is shared with the link and
// counted, so it stays when the link closes. The file cannot shrink, and memory that the peer frees reads as
// zeros or as what the peer allocates there next: no access faults.
func (e *EP) Map(raddr uint64, n int, key uct.RKey) ([]byte, func(), error) {
	if !e.ready() {
		return nil, nil, e.refused()
	}
	off, ok := e.offset(uint64(key), raddr, uint64(n))
	if !ok && e.extended(uint64(key), raddr, uint64(n), uct.AccessRemoteRead) {
		off, ok = e.offset(uint64(key), raddr, uint64(n))
	}
	switch {
	case ok:
	case e.private(uint64(key), raddr, uint64(n), uct.AccessRemoteRead):
		return nil, nil, uct.ErrUnsupported
	default:
		return nil, nil, e.denied()
	}
	seg := e.arenaSeg.Clone()
	unmap := func() { _ = seg.Close() } // unmapping what is mapped does not fail
	return seg.Bytes()[off : off+n : off+n], unmap, nil
}

// offset returns where in the mapped arena a range is that the key permits to read.
func (l *outLink) offset(key, raddr, n uint64) (off int, ok bool) {
	idle := l.enter(key)
	p := l.mapped(key, raddr, n, uct.AccessRemoteRead)
	l.guard.Leave(idle)
	if p == nil {
		return 0, false
	}
	return int(uintptr(p) - uintptr(l.arena)), true // both are in one mapping, which mapped has checked
}
