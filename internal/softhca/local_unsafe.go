package softhca

import (
	"encoding/binary"
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// walk accesses the local memory of a work request, SGE by SGE.
type walk struct {
	qp   *queuePair
	sges []verbs.SGE
	need verbs.Access
	pdn  uint32
	// The parts of inline data; sges is then empty.
	head, tail []byte
}

// begin sets k, which is zero, to the payload of a send work request of qp.
func (k *walk) begin(qp *queuePair, w *prm.WQE, need verbs.Access) {
	k.qp, k.pdn, k.need = qp, qp.pdn, need
	if w.InlineLen > 0 {
		k.head, k.tail = qp.sq.Inline(w)
		return
	}
	k.sges = w.SGEs()
}

// valid reports whether all memory may be accessed.
func (k *walk) valid() bool {
	for i := range k.sges {
		s := &k.sges[i]
		if k.qp.hca.regions.find(s.LKey, s.Addr, uint64(s.Length), k.pdn, k.need) == nil {
			return false
		}
	}
	return true
}

// at returns the memory at offset off of the message, and the number of contiguous bytes
// there; nil if the memory may not be accessed or the message is shorter.
func (k *walk) at(off uint64) (unsafe.Pointer, uint64) {
	for i := range k.sges {
		s := &k.sges[i]
		n := uint64(s.Length)
		if off >= n {
			off -= n
			continue
		}
		return k.qp.hca.regions.find(s.LKey, s.Addr+off, n-off, k.pdn, k.need), n - off
	}
	for _, b := range [2][]byte{k.head, k.tail} {
		if off < uint64(len(b)) {
			return unsafe.Pointer(&b[off]), uint64(len(b)) - off
		}
		off -= uint64(len(b))
	}
	return nil, 0
}

// gather copies n bytes from offset off of the message to dst.
func (k *walk) gather(dst unsafe.Pointer, off, n uint64) bool {
	for n > 0 {
		src, m := k.at(off)
		if src == nil {
			return false
		}
		if m >= n { // last part: dst must not point behind its allocation
			move(dst, src, n)
			return true
		}
		move(dst, src, m)
		dst = unsafe.Add(dst, m)
		off += m
		n -= m
	}
	return true
}

// scatter copies n bytes from src to offset off of the message.
func (k *walk) scatter(src unsafe.Pointer, off, n uint64) bool {
	for n > 0 {
		dst, m := k.at(off)
		if dst == nil {
			return false
		}
		if m >= n { // last part: src must not point behind its allocation
			move(dst, src, n)
			return true
		}
		move(dst, src, m)
		src = unsafe.Add(src, m)
		off += m
		n -= m
	}
	return true
}

// move copies n bytes. It does not tear aligned words: neither does the copy of the runtime, nor
// the store of one word.
func move(dst, src unsafe.Pointer, n uint64) {
	d, s := unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n)
	if n == 8 {
		binary.NativeEndian.PutUint64(d, binary.NativeEndian.Uint64(s))
		return
	}
	copy(d, s)
}
