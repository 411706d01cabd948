package prm

import (
	"math/bits"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// ShortWrite is an RDMA write with inline payload whose WQE is one basic
// block, as for nearly every short put. Its methods decode single fields in
// the memory of the ring, valid until the WQE completes.
type ShortWrite struct {
	bb  *BB
	len uint32
}

// Offset and maximum length of the payload of a short write.
const (
	shortData   = CtrlLen + RaddrLen + InlineHdrLen
	MaxShortLen = BBLen - shortData
)

// ShortSegs is the length in units of the WQE of a short write of n bytes, 1 to
// MaxShortLen.
func ShortSegs(n int) uint32 { return uint32(shortData+n+SegLen-1) / SegLen }

// PutShortWrite writes the control and the remote address segment of a short write to b;
// PutShortData follows. (Two functions, so that the compiler inlines both.)
func PutShortWrite(b *BB, word uint64, flags CtrlFlags, raddr uint64, rkey uint32) {
	be.PutUint64(b[0:8], word)
	le.PutUint64(b[8:16], pair(uint32(flags), 0))
	be.PutUint64(b[16:24], raddr)
	le.PutUint64(b[24:32], pair(rkey, 0))
}

// PutShortData writes the payload of a short write, 1 to MaxShortLen bytes.
func PutShortData(b *BB, data []byte) {
	if len(data) == 8 { // in words of eight bytes, as a copy to the register loads them
		v := le.Uint64(data)
		le.PutUint64(b[32:40], v<<32|8<<24|inlineBit>>24)
		le.PutUint64(b[40:48], bits.RotateLeft64(v, 32)) // and padding
		return
	}
	be.PutUint32(b[32:36], uint32(len(data))|inlineBit)
	copy(b[shortData:], data)
}

// PutWriteData is PutShortData for a write at index pi whose payload fills several BBs.
func (v *SQView) PutWriteData(pi uint32, data []byte) {
	be.PutUint32(v.BB(pi)[32:36], uint32(len(data))|inlineBit)
	v.putBytes(pi*BBLen+shortData, data)
}

// PutSendData writes the payload of an inline send at index pi, after the control segment: first, in little-endian
// order, and then data. Together they fill several BBs.
func (v *SQView) PutSendData(pi uint32, first uint64, data []byte) {
	b := v.BB(pi)
	be.PutUint32(b[16:20], uint32(8+len(data))|inlineBit)
	le.PutUint64(b[20:28], first)
	v.putBytes(pi*BBLen+28, data)
}

// ShortWrite returns the WQE at index ci, in BBs, which must have been posted; false if
// it is not a short write, or not well-formed: use DecodeWQE then.
func (v *SQView) ShortWrite(ci uint16) (w ShortWrite, ok bool) {
	b := v.BB(uint32(ci))
	n := be.Uint32(b[CtrlLen+RaddrLen:shortData]) ^ inlineBit
	ds := uint64(n+shortData+SegLen-1) / SegLen
	if n-1 >= MaxShortLen || v.typ != verbs.QPTypeRC ||
		be.Uint64(b[0:8]) != v.want|uint64(ci)<<40|uint64(OpRDMAWrite)<<32|ds {
		return ShortWrite{}, false
	}
	return ShortWrite{b, n}, true
}

// Signaled reports whether the work request generates a CQE on success.
func (w ShortWrite) Signaled() bool { return CtrlFlags(w.bb[11]).Signaled() }

// Target returns the address and the key of the destination.
func (w ShortWrite) Target() (raddr uint64, rkey uint32) {
	return be.Uint64(w.bb[16:24]), be.Uint32(w.bb[24:28])
}

// Data is the payload, 1 to 28 bytes.
func (w ShortWrite) Data() []byte { return w.bb[shortData : shortData+w.len&(BBLen-1)] }

// MaxShortSendLen is the longest payload of an inline send of one basic block.
const MaxShortSendLen = BBLen - CtrlLen - InlineHdrLen

// ShortSendSegs is the length in units of the WQE of a short send of n bytes, 1 to
// MaxShortSendLen.
func ShortSendSegs(n int) uint32 {
	return uint32(CtrlLen+InlineHdrLen+n+SegLen-1) / SegLen
}

// PutShortSend writes an inline send of one basic block with an immediate to b. Its
// payload is first, in little-endian order, and then data. Together they must fit in the block.
func PutShortSend(b *BB, word uint64, flags CtrlFlags, imm uint32, first uint64, data []byte) {
	PutCtrl(b, word, flags, imm)
	be.PutUint32(b[16:20], uint32(8+len(data))|inlineBit)
	le.PutUint64(b[20:28], first)
	copy(b[28:], data)
}
