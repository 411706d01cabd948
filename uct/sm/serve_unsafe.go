package sm

import (
	"unsafe"

	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
	"github.com/gucx/gucx/uct/targetop"
)

// serve executes a request of a peer; false if it is malformed. The peer has checked
// the table before, so a rejection is rare.
func (l *inLink) serve(s *slot) bool {
	r := *(*request)(unsafe.Pointer(&s.data)) // a copy: the peer may change it
	if r.seg >= l.rx.count || int64(r.n) > int64(l.rx.segLen) {
		return false
	}
	ans := &l.rx.hdr.answer[r.seg]
	*ans = answer{}
	if !l.it.md.execute(&r, l.rx.seg(r.seg)[:r.n], &ans.old) {
		ans.status = 1
	}
	race.ReleaseToPeers()
	l.rx.returnSegment(r.seg)
	return true
}

// execute executes r on memory of this process. data has the bytes of a put, or gets those of a get. The
// lock of the domain is held, so that the memory is not closed.
func (md *domain) execute(r *request, data []byte, old *uint64) bool {
	md.mu.Lock()
	defer md.mu.Unlock()
	m := md.mems[r.key]
	if m == nil || m.access&r.kind.need() == 0 {
		return false
	}
	if r.kind == opAtomic {
		a := targetop.Atomic{Op: r.op, Size: int(r.size), Raddr: r.raddr, Value: r.value, Compare: r.compare}
		v, st := a.Do(m.buf, m.Addr())
		*old = v
		return st == ucs.StatusOK
	}
	off, ok := targetop.Offset(len(m.buf), m.Addr(), r.raddr, len(data))
	if !ok {
		return false
	}
	target := m.buf[off : off+len(data)]
	switch r.kind {
	case opPut:
		memop.Copy(target, data)
	case opGet:
		memop.Copy(data, target)
	default:
		return false
	}
	return true
}

// gatherFrom fills dst with the bytes of iov that begin at offset skip.
func gatherFrom(dst []byte, iov []uct.IOV, skip int) {
	eachPiece(iov, skip, dst, func(piece, part []byte) { memop.Copy(part, piece) })
}

// scatterAt copies src to iov at offset skip.
func scatterAt(iov []uct.IOV, skip int, src []byte) {
	eachPiece(iov, skip, src, func(piece, part []byte) { memop.Copy(piece, part) })
}

// eachPiece calls f with the parts of iov, beginning at offset skip, and the corresponding parts of flat.
func eachPiece(iov []uct.IOV, skip int, flat []byte, f func(piece, part []byte)) {
	for i := range iov {
		b := iov[i].Buf
		if skip >= len(b) {
			skip -= len(b)
			continue
		}
		b = b[skip:]
		skip = 0
		n := min(len(b), len(flat))
		f(b[:n], flat[:n])
		if flat = flat[n:]; len(flat) == 0 {
			return
		}
	}
}
