package prm

import (
	"math/bits"
	"unsafe"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// The views below convert an index to a pointer to an entry of a ring. Each view masks
// the index with the length of the ring, a power of two, which the constructor
// checks, so the pointer is always in the ring. The memory must be
// mapped while the view is used. base must be aligned to 64 bytes.

// MaxQueueLen is the largest queue in entries: indexes have 16 bits.
const MaxQueueLen = 1 << 15

// SQView is a send queue.
type SQView struct {
	base unsafe.Pointer
	mask uint32 // BBs - 1
	want uint64 // CtrlWord of index 0, opcode 0 and length 0
	typ  verbs.QPType
}

// NewSQView returns a view of a ring of count BBs. ErrInvalidParam if count is not
// a power of two in [1, 32768], base is nil or misaligned.
func NewSQView(base unsafe.Pointer, count, qpn uint32, typ verbs.QPType) (SQView, error) {
	if !ringOK(base, count) {
		return SQView{}, ucs.ErrInvalidParam
	}
	return SQView{base: base, mask: count - 1, want: CtrlWord(0, 0, qpn&qpnMask, 0), typ: typ}, nil
}

func ringOK(base unsafe.Pointer, count uint32) bool {
	return base != nil && uintptr(base)%BBLen == 0 && count <= MaxQueueLen && bits.OnesCount32(count) == 1
}

// Base is the address of the ring.
func (v *SQView) Base() unsafe.Pointer { return v.base }

// Count is the length of the ring in BBs.
func (v *SQView) Count() uint32 { return v.mask + 1 }

// BB returns basic block i, a free-running index.
func (v *SQView) BB(i uint32) *BB {
	return (*BB)(unsafe.Add(v.base, uintptr(i&v.mask)*BBLen))
}

// Word is the control word of a WQE of ds units at producer index pi.
func (v *SQView) Word(pi uint32, op Opcode, ds uint32) uint64 {
	return v.want | uint64(uint16(pi))<<40 | uint64(op)<<32 | uint64(ds)
}

// putBytes copies data to byte off of the ring, counted from the start. At the end of the ring
// it continues at the start.
func (v *SQView) putBytes(off uint32, data []byte) {
	size := v.Count() * BBLen
	at := off & (size - 1)
	n := copy(unsafe.Slice((*byte)(unsafe.Add(v.base, uintptr(at))), size-at), data)
	if n < len(data) {
		copy(unsafe.Slice((*byte)(v.base), at), data[n:])
	}
}

// seg returns unit i, a free-running index.
func (v *SQView) seg(i uint32) *Seg {
	return (*Seg)(unsafe.Add(v.base, uintptr(i&(v.mask*SegsPerBB+SegsPerBB-1))*SegLen))
}

// Inline returns the payload of an inline WQE that DecodeWQE has read from this ring:
// head, then tail, which is not empty if the bytes continue at the start of the ring.
// Both are memory of the ring, valid until the WQE completes.
func (v *SQView) Inline(w *WQE) (head, tail []byte) {
	size := (v.mask + 1) * BBLen
	off := w.InlineOff & (size - 1)
	n := min(w.InlineLen, size)
	first := min(n, size-off)
	head = unsafe.Slice((*byte)(unsafe.Add(v.base, uintptr(off))), first)
	if n > first {
		tail = unsafe.Slice((*byte)(v.base), n-first)
	}
	return head, tail
}

// RQView is the ring of a receive queue or of a shared one.
type RQView struct {
	base   unsafe.Pointer
	mask   uint32
	stride uint8 // log2
}

// NewRQView returns a view of a ring of count entries of 1<<stride bytes.
// ErrInvalidParam if count is not a power of two in [1, 32768], stride not in
// [4, 12], base nil or misaligned.
func NewRQView(base unsafe.Pointer, count uint32, stride uint8) (RQView, error) {
	if !ringOK(base, count) || stride < 4 || stride > 12 {
		return RQView{}, ucs.ErrInvalidParam
	}
	return RQView{base: base, mask: count - 1, stride: stride}, nil
}

// Base is the address of the ring; nil if there is none.
func (v *RQView) Base() unsafe.Pointer { return v.base }

// Stride is the length of an entry in bytes.
func (v *RQView) Stride() uint32 { return 1 << v.stride }

// Count is the length of the ring in entries.
func (v *RQView) Count() uint32 { return v.mask + 1 }

// Entry returns all units of entry i.
func (v *RQView) Entry(i uint32) []Seg {
	p := unsafe.Add(v.base, uintptr(i&v.mask)<<v.stride)
	return unsafe.Slice((*Seg)(p), 1<<v.stride/SegLen)
}

// next returns the first unit of entry i: in an SRQ the next segment.
func (v *RQView) next(i uint16) *Seg {
	return (*Seg)(unsafe.Add(v.base, uintptr(uint32(i)&v.mask)<<(v.stride&31)))
}

// CQView is the ring of a completion queue.
type CQView struct {
	base unsafe.Pointer
	mask uint32
}

// MaxCQLen is the maximum length of a completion queue in entries: its index has 24 bits, and
// one of them is the pass bit.
const MaxCQLen = 1 << 22

// NewCQView returns a view of a ring of count CQEs. ErrInvalidParam if count is
// not a power of two in [1, 4194304], base is nil or misaligned.
func NewCQView(base unsafe.Pointer, count uint32) (CQView, error) {
	if base == nil || uintptr(base)%CQELen != 0 || count > MaxCQLen || bits.OnesCount32(count) != 1 {
		return CQView{}, ucs.ErrInvalidParam
	}
	return CQView{base: base, mask: count - 1}, nil
}

// Base is the address of the ring.
func (v *CQView) Base() unsafe.Pointer { return v.base }

// Count is the length of the ring.
func (v *CQView) Count() uint32 { return v.mask + 1 }

// Slot returns entry i, a free-running index.
func (v *CQView) Slot(i uint32) *CQESlot {
	return (*CQESlot)(unsafe.Add(v.base, uintptr(i&v.mask)*CQELen))
}

// Owner is the pass bit of index i.
func (v *CQView) Owner(i uint32) uint8 { return OwnerBit(i, v.mask+1) }
