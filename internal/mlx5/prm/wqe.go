package prm

import (
	"encoding/binary"
	"math/bits"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// Lengths in bytes of the parts of a send WQE.
const (
	BBLen        = 64 // basic block
	SegLen       = 16 // unit of a WQE's length (ds)
	CtrlLen      = 16
	RaddrLen     = 16
	AtomicLen    = 16
	DataLen      = 16
	XRCLen       = 16
	InlineHdrLen = 4 // before the bytes of an inline segment

	SegsPerBB = BBLen / SegLen
	// MaxDS is the longest WQE in units: a field of six bits.
	MaxDS = 63
	// MaxSGE is the largest number of data pointers in a WQE: all but control.
	MaxSGE = MaxDS - 1
	// MaxSGELen is the maximum length of a data pointer in bytes: a length of 0 means one byte more.
	MaxSGELen = zeroIsLen - 1
)

const (
	inlineBit = 1 << 31 // in the first word of a data segment: the bytes follow
	dsMask    = 0x3f
	qpnShift  = 8
	qpnMask   = 1<<24 - 1
	// zeroIsLen is the length that hardware uses for a byte count of 0. Therefore
	// encoders omit SGEs of length 0.
	zeroIsLen = 1 << 31
)

// BB is a basic block of a send queue.
type BB = [BBLen]byte

// Seg is one 16-byte unit.
type Seg = [SegLen]byte

// SGList is room for the data pointers of any WQE.
type SGList = [MaxSGE]verbs.SGE

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// pair returns the little-endian number whose store writes two words of a queue. The compiler makes
// one store of it, but eight of the store of a big-endian number with a shifted word.
func pair(first, second uint32) uint64 {
	return bits.ReverseBytes64(uint64(first)<<32 | uint64(second))
}

// CtrlWord is the first eight bytes of a WQE as a big-endian number: what a
// doorbell carries. index is the low half of the producer index, counted in BBs.
func CtrlWord(op Opcode, index uint16, qpn uint32, ds uint8) uint64 {
	return uint64(index)<<40 | uint64(op)<<32 | uint64(qpn)<<qpnShift | uint64(ds)
}

// SplitCtrlWord returns the index and the QPN in a control word.
func SplitCtrlWord(w uint64) (index uint16, qpn uint32) {
	return uint16(w >> 40), uint32(w) >> qpnShift
}

// WordDS is the length in a control word, in units.
func WordDS(word uint64) uint32 { return uint32(word) & dsMask }

// WordBBs is the length in a control word, in basic blocks.
func WordBBs(word uint64) uint32 { return (WordDS(word) + SegsPerBB - 1) / SegsPerBB }

// PutCtrl writes the control segment to the first 16 bytes of b.
func PutCtrl(b *BB, word uint64, flags CtrlFlags, imm uint32) {
	be.PutUint64(b[0:8], word)
	le.PutUint64(b[8:16], pair(uint32(flags), imm))
}

// putRaddr writes a remote address segment.
func putRaddr(s *Seg, addr uint64, rkey uint32) {
	be.PutUint64(s[0:8], addr)
	le.PutUint64(s[8:16], pair(rkey, 0))
}

// putAtomicOperands writes an atomic segment. A fetch-add has the addend in swapOrAdd
// and 0 in compare.
func putAtomicOperands(s *Seg, swapOrAdd, compare uint64) {
	be.PutUint64(s[0:8], swapOrAdd)
	be.PutUint64(s[8:16], compare)
}

// putAtomicData writes the data pointer of an atomic: the destination of the old value. Its
// length is that of the operand; sge.Length is ignored.
func putAtomicData(s *Seg, sge verbs.SGE) {
	sge.Length = AtomicOperandLen
	PutData(s, sge)
}

// PutData writes a data pointer. sge.Length must be in [1, 2^31).
func PutData(s *Seg, sge verbs.SGE) {
	le.PutUint64(s[0:8], pair(sge.Length, sge.LKey))
	be.PutUint64(s[8:16], sge.Addr)
}

// putInlineHeader writes the length word of an inline segment of n bytes, which
// begin at s[4] and continue in the units after s.
func putInlineHeader(s *Seg, n uint32) {
	be.PutUint32(s[0:4], n|inlineBit)
}

// putXRC writes the XRC segment: the remote SRQ.
func putXRC(s *Seg, srqn uint32) {
	le.PutUint64(s[0:8], pair(srqn, 0))
	be.PutUint64(s[8:16], 0)
}

// InlineSegs returns the length of an inline segment of n bytes, in units; 0 for n = 0.
func InlineSegs(n int) int {
	if n == 0 {
		return 0
	}
	return (n + InlineHdrLen + SegLen - 1) / SegLen
}

// BBs is the number of basic blocks of a WQE of ds units.
func BBs(ds int) int { return (ds + SegsPerBB - 1) / SegsPerBB }
