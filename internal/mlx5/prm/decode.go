package prm

import "github.com/gucx/gucx/uct/ib/verbs"

// WQE is a send WQE, decoded. The payload is the inline bytes, then the data
// pointers; Len counts both.
type WQE struct {
	Op     Opcode
	Flags  CtrlFlags
	NumSGE uint8
	Index  uint16 // of its first BB
	SRQN   uint32 // XRC
	Imm    uint32 // host order

	RAddr     uint64 // RDMA and atomics
	RKey      uint32
	InlineLen uint32 // see SQView.Inline
	InlineOff uint32 // bytes from the ring's start
	SwapOrAdd uint64
	Compare   uint64
	Len       uint64

	AV  AV // UD
	SGE SGList
}

// SGEs is the data pointers.
func (w *WQE) SGEs() []verbs.SGE { return w.SGE[:min(w.NumSGE, MaxSGE)] }

// The parts of the control segment that must match: all but opcode and length.
const ctrlOpDSMask = 0xff<<32 | dsMask

// DecodeWQE reads the WQE at consumer index ci of a ring whose producer index is
// pi, both in BBs. bbs is the length of the WQE, at least 1, also after an error.
// After an error syndrome is that of the error CQE, and only Op, Flags and
// Index of w are valid. Fields of w that the opcode does not have are not changed.
//
// It rejects: a length of 0 or beyond pi, a wrong index or QPN, an unknown
// opcode or an opcode that the service does not have, segments that do not fit, inline
// data after a data pointer or in a read or atomic (all SyndromeLocalQPOp); an
// atomic of other than 8 bytes (SyndromeLocalLength). The caller must check keys, bounds and the
// length of the message. If the producer has overrun its ring, the index is wrong.
func DecodeWQE(v *SQView, ci, pi uint16, w *WQE) (bbs int, syn Syndrome) {
	b := v.BB(uint32(ci))
	word := be.Uint64(b[0:8])
	tail := be.Uint64(b[8:16])
	w.Op, w.Index = Opcode(word>>32), ci
	w.Flags, w.Imm = CtrlFlags(tail>>32), uint32(tail)
	if word&^ctrlOpDSMask != v.want|uint64(ci)<<40 || ci == pi {
		return wqeSpan(word, ci, pi), SyndromeLocalQPOp
	}
	return decodeAny(v, word, ci, pi, w)
}

// SkipWQE returns the bbs that DecodeWQE would return, for a flush.
func SkipWQE(v *SQView, ci, pi uint16) int {
	return wqeSpan(be.Uint64(v.BB(uint32(ci))[0:8]), ci, pi)
}

// wqeSpan returns the length of the WQE at ci in BBs, at least 1 and not
// beyond pi.
func wqeSpan(word uint64, ci, pi uint16) int {
	return max(1, min(BBs(int(word&dsMask)), int(pi-ci)))
}

// decodeAny is DecodeWQE after the control segment's fixed fields.
func decodeAny(v *SQView, word uint64, ci, pi uint16, w *WQE) (int, Syndrome) {
	ds := int(word & dsMask)
	bbs := BBs(ds)
	sh := shapes[w.Op]
	if ds == 0 || bbs > int(pi-ci) || sh == shapeBad {
		return wqeSpan(word, ci, pi), SyndromeLocalQPOp
	}
	w.NumSGE, w.InlineLen, w.Len = 0, 0, 0
	c := cursor{v: v, pos: uint32(ci)*SegsPerBB + 1, end: uint32(ci)*SegsPerBB + uint32(ds)}
	if sh == shapeNOP {
		return bbs, SyndromeOK
	}
	if syn := c.service(w, sh); syn != SyndromeOK {
		return bbs, syn
	}
	return bbs, c.operation(w, sh)
}

// cursor walks the units of a WQE. pos and end are running indexes of units, as ci is
// of BBs.
type cursor struct {
	v        *SQView
	pos, end uint32
}

// next returns the next unit; nil after the last one.
func (c *cursor) next() *Seg {
	if c.pos == c.end {
		return nil
	}
	s := c.v.seg(c.pos)
	c.pos++
	return s
}

// service reads the segments after the control segment that depend on the QP's type.
func (c *cursor) service(w *WQE, sh shape) Syndrome {
	switch c.v.typ {
	case verbs.QPTypeRC:
		return SyndromeOK
	case verbs.QPTypeUD:
		return c.datagram(w, sh)
	case verbs.QPTypeXRCSend:
		s := c.next()
		if s == nil {
			return SyndromeLocalQPOp
		}
		w.SRQN = be.Uint32(s[0:4]) & qpnMask
		return SyndromeOK
	}
	return SyndromeLocalQPOp
}

// datagram reads the AV: the last three units of the first BB.
func (c *cursor) datagram(w *WQE, sh shape) Syndrome {
	const units = AVLen / SegLen
	if sh != shapeSend || c.end-c.pos < units {
		return SyndromeLocalQPOp
	}
	bb := c.v.BB(c.pos / SegsPerBB)
	if !w.AV.Load((*[AVLen]byte)(bb[CtrlLen:])) {
		return SyndromeLocalQPOp
	}
	c.pos += units
	return SyndromeOK
}

// operation reads the segments that the opcode has.
func (c *cursor) operation(w *WQE, sh shape) Syndrome {
	if sh != shapeSend {
		s := c.next()
		if s == nil {
			return SyndromeLocalQPOp
		}
		w.RAddr, w.RKey = be.Uint64(s[0:8]), be.Uint32(s[8:12])
	}
	if sh == shapeAtomic {
		s := c.next()
		if s == nil {
			return SyndromeLocalQPOp
		}
		w.SwapOrAdd, w.Compare = be.Uint64(s[0:8]), be.Uint64(s[8:16])
	}
	if syn := c.payload(w, sh == shapeSend || sh == shapeWrite); syn != SyndromeOK {
		return syn
	}
	if sh == shapeAtomic && w.Len != AtomicOperandLen {
		return SyndromeLocalLength
	}
	return SyndromeOK
}

// AtomicOperandLen is the length of the operand of an atomic.
const AtomicOperandLen = 8

// payload reads inline and data segments to the end of the WQE.
func (c *cursor) payload(w *WQE, inlineOK bool) Syndrome {
	for c.pos != c.end {
		s := c.v.seg(c.pos)
		if s[0]&(inlineBit>>24) != 0 {
			if !inlineOK || w.NumSGE != 0 || w.InlineLen != 0 || !c.inline(w, s) {
				return SyndromeLocalQPOp
			}
			continue
		}
		w.SGE[w.NumSGE] = loadData(s)
		w.Len += uint64(w.SGE[w.NumSGE].Length)
		w.NumSGE++
		c.pos++
	}
	return SyndromeOK
}

// inline reads the header of an inline segment and skips its bytes.
func (c *cursor) inline(w *WQE, s *Seg) bool {
	n := be.Uint32(s[0:4]) &^ inlineBit
	if n > MaxDS*SegLen {
		return false
	}
	units := max(1, uint32(InlineSegs(int(n))))
	if units > c.end-c.pos {
		return false
	}
	w.InlineOff = (c.pos*SegLen + InlineHdrLen) & (c.v.Count()*BBLen - 1)
	w.InlineLen = n
	w.Len = uint64(n)
	c.pos += units
	return true
}
