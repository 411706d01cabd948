package mlx5

import "github.com/gucx/gucx/uct/ib/verbs"

// ShortWrite is an RDMA write whose payload is inline and whose WQE is one basic
// block: what nearly every short put is. It is read in place: nothing is decoded that
// is not asked for. The memory is that of the ring, valid until the WQE completes.
type ShortWrite struct {
	bb  *BB
	len uint32
}

// Where the payload of a short write begins, and how much of it there can be.
const (
	shortData   = CtrlLen + RaddrLen + InlineHdrLen
	maxShortLen = BBLen - shortData
)

// ShortWrite reads the WQE at index ci, in BBs, which must have been posted. False if
// it is anything else, well-formed or not: DecodeWQE then says what.
func (v *SQView) ShortWrite(ci uint16) (w ShortWrite, ok bool) {
	b := v.BB(uint32(ci))
	n := be.Uint32(b[CtrlLen+RaddrLen:shortData]) ^ inlineBit
	ds := uint64(n+shortData+SegLen-1) / SegLen
	if n-1 >= maxShortLen || v.typ != verbs.QPTypeRC ||
		be.Uint64(b[0:8]) != v.want|uint64(ci)<<40|uint64(OpRDMAWrite)<<32|ds {
		return ShortWrite{}, false
	}
	return ShortWrite{b, n}, true
}

// Signaled reports whether the work request makes a CQE on success.
func (w ShortWrite) Signaled() bool { return CtrlFlags(w.bb[11]).Signaled() }

// Target is where the bytes go.
func (w ShortWrite) Target() (raddr uint64, rkey uint32) {
	return be.Uint64(w.bb[16:24]), be.Uint32(w.bb[24:28])
}

// Data is the payload, 1 to 28 bytes.
func (w ShortWrite) Data() []byte { return w.bb[shortData : shortData+w.len&(BBLen-1)] }
