package prm

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// sendOp is the encoding of a verbs opcode. The zero value means that the service does not have the opcode.
type sendOp struct {
	op      Opcode
	shape   shape
	immMask uint32 // all ones if the WQE carries the immediate
}

const withImm = 1<<32 - 1

// rcOps, which XRC has too, and udOps are indexed by verbs.Opcode.
var (
	rcOps = [256]sendOp{
		verbs.OpRDMAWrite:        {op: OpRDMAWrite, shape: shapeWrite},
		verbs.OpRDMAWriteWithImm: {op: OpRDMAWriteImm, shape: shapeWrite, immMask: withImm},
		verbs.OpSend:             {op: OpSend, shape: shapeSend},
		verbs.OpSendWithImm:      {op: OpSendImm, shape: shapeSend, immMask: withImm},
		verbs.OpRDMARead:         {op: OpRDMARead, shape: shapeRead},
		verbs.OpAtomicCmpSwap:    {op: OpAtomicCS, shape: shapeAtomic},
		verbs.OpAtomicFetchAdd:   {op: OpAtomicFA, shape: shapeAtomic},
	}
	udOps = [256]sendOp{
		verbs.OpSend:        {op: OpSend, shape: shapeSend},
		verbs.OpSendWithImm: {op: OpSendImm, shape: shapeSend, immMask: withImm},
	}
)

// SendRing is the producer of a send queue: it encodes work requests. It does not
// check for free entries, and rings no doorbell.
type SendRing struct {
	SQView
	ops       *[256]sendOp
	maxInline uint32
	maxSGE    uint32
	always    CtrlFlags
}

// NewSendRing returns the producer of v, for work requests within limits. With sigAll each of them
// generates a CQE.
func NewSendRing(v SQView, limits verbs.QPCap, sigAll bool) SendRing {
	r := SendRing{SQView: v, ops: &rcOps, maxInline: uint32(limits.MaxInline), maxSGE: uint32(limits.MaxSendSGE)}
	if v.typ == verbs.QPTypeUD {
		r.ops = &udOps
	}
	if sigAll {
		r.always = CtrlCQUpdate
	}
	return r
}

// Encode writes the WQE of wr at producer index pi. av is the address of a datagram, and
// nil otherwise. It returns the control word, which is never 0 because it contains a length; or 0 if wr is not
// valid. Refused returns the reason.
func (r *SendRing) Encode(pi uint32, wr *verbs.SendWR, av *[AVLen]byte) uint64 {
	if wr.Flags&verbs.SendInline != 0 && r.typ == verbs.QPTypeRC {
		// The most frequent case, a short write or message: every offset is a constant.
		n := len(wr.Inline)
		switch {
		case wr.Opcode == verbs.OpRDMAWrite && uint(n-1) < MaxShortLen:
			word := r.Word(pi, OpRDMAWrite, ShortSegs(n))
			b := r.BB(pi)
			PutShortWrite(b, word, ctrlFlags[wr.Flags&15]|r.always, wr.RemoteAddr, wr.RKey)
			PutShortData(b, wr.Inline)
			return word
		case wr.Opcode == verbs.OpSendWithImm && uint(n-1) < MaxShortSendLen:
			word := r.Word(pi, OpSendImm, ShortSendSegs(n))
			b := r.BB(pi)
			PutCtrl(b, word, ctrlFlags[wr.Flags&15]|r.always, wr.Imm)
			be.PutUint32(b[16:20], uint32(n)|inlineBit)
			copy(b[20:], wr.Inline)
			return word
		}
	}
	return r.encodeAny(pi, wr, av)
}

// encodeAny writes any WQE, unit by unit, control segment last.
func (r *SendRing) encodeAny(pi uint32, wr *verbs.SendWR, av *[AVLen]byte) uint64 {
	op := r.ops[wr.Opcode]
	start := uint32(uint16(pi)) * SegsPerBB // as in a ring of 2^16 BBs, so that no pos after it is 0
	pos := start + 1
	b := r.BB(pi)
	if r.typ == verbs.QPTypeUD {
		if av == nil {
			return 0
		}
		d := (*[AVLen]byte)(b[CtrlLen:]) // with the control segment it fills the first BB
		*d = *av
		PutAVDest(d, wr.RemoteQKey, wr.RemoteQPN&qpnMask)
		pos += AVLen / SegLen
	}
	if r.typ == verbs.QPTypeXRCSend {
		putXRC(r.seg(pos), wr.SRQN&qpnMask)
		pos++
	}
	switch op.shape {
	case shapeSend:
	case shapeWrite, shapeRead:
		putRaddr(r.seg(pos), wr.RemoteAddr, wr.RKey)
		pos++
	case shapeAtomic:
		pos = r.putAtomic(pos, wr)
	default:
		return 0
	}
	if op.shape != shapeAtomic {
		pos = r.putPayload(pos, op.shape, wr)
	}
	if pos == 0 {
		return 0
	}
	word := r.Word(pi, op.op, pos-start)
	PutCtrl(b, word, ctrlFlags[wr.Flags&15]|r.always, wr.Imm&op.immMask)
	return word
}

// ctrlFlags is indexed by verbs.SendFlags.
var ctrlFlags = func() (t [16]CtrlFlags) {
	for f := range t {
		for flag, bits := range map[verbs.SendFlags]CtrlFlags{
			verbs.SendFence: CtrlFence, verbs.SendSignaled: CtrlCQUpdate, verbs.SendSolicited: CtrlSolicited,
		} {
			if verbs.SendFlags(f)&flag != 0 {
				t[f] |= bits
			}
		}
	}
	return t
}()

// putAtomic writes all segments of an atomic at unit pos and returns the unit
// after them; 0 if wr does not have exactly one SGE, or if the SGE is too long.
func (r *SendRing) putAtomic(pos uint32, wr *verbs.SendWR) uint32 {
	if wr.Flags&verbs.SendInline != 0 || len(wr.SGList) != 1 || wr.SGList[0].Length > MaxSGELen {
		return 0
	}
	putRaddr(r.seg(pos), wr.RemoteAddr, wr.RKey)
	if wr.Opcode == verbs.OpAtomicFetchAdd {
		putAtomicOperands(r.seg(pos+1), wr.CompareAdd, 0)
	} else {
		putAtomicOperands(r.seg(pos+1), wr.Swap, wr.CompareAdd)
	}
	if wr.SGList[0].Length == 0 {
		return pos + 2
	}
	putAtomicData(r.seg(pos+2), wr.SGList[0])
	return pos + 3
}

// putPayload writes the inline segment or the data pointers at unit pos and
// returns the unit after them; 0 if there are too many or too long ones, or if the opcode does not permit them. It omits
// empty SGEs, because to hardware a length of 0 means 2 GiB.
func (r *SendRing) putPayload(pos uint32, sh shape, wr *verbs.SendWR) uint32 {
	if wr.Flags&verbs.SendInline != 0 {
		return r.putInline(pos, sh, wr.Inline)
	}
	if len(wr.SGList) > int(r.maxSGE) {
		return 0
	}
	for i := range wr.SGList {
		sge := &wr.SGList[i]
		if sge.Length > MaxSGELen {
			return 0
		}
		if sge.Length != 0 {
			PutData(r.seg(pos), *sge)
			pos++
		}
	}
	return pos
}

func (r *SendRing) putInline(pos uint32, sh shape, data []byte) uint32 {
	if len(data) > int(r.maxInline) || (sh != shapeSend && sh != shapeWrite) {
		return 0
	}
	if len(data) == 0 {
		return pos
	}
	putInlineHeader(r.seg(pos), uint32(len(data)))
	r.putBytes(pos*SegLen+InlineHdrLen, data)
	return pos + uint32(InlineSegs(len(data)))
}

// Refused returns the reason why Encode has rejected wr.
//
//go:noinline
func (r *SendRing) Refused(wr *verbs.SendWR, av *[AVLen]byte) error {
	sh := r.ops[wr.Opcode].shape
	inline := wr.Flags&verbs.SendInline != 0
	switch {
	case sh == shapeBad:
		return fmt.Errorf("opcode %d on this type of QP: %w", wr.Opcode, ucs.ErrInvalidParam)
	case r.typ == verbs.QPTypeUD && av == nil && wr.AH != nil:
		return fmt.Errorf("address handle of another provider: %w", ucs.ErrInvalidParam)
	case r.typ == verbs.QPTypeUD && av == nil:
		return fmt.Errorf("no address handle: %w", ucs.ErrInvalidParam)
	case inline && sh != shapeSend && sh != shapeWrite:
		return fmt.Errorf("opcode %d cannot be inline: %w", wr.Opcode, ucs.ErrInvalidParam)
	case inline:
		return fmt.Errorf("inline %d bytes, limit %d: %w", len(wr.Inline), r.maxInline, ucs.ErrTooLong)
	case sh == shapeAtomic && len(wr.SGList) != 1:
		return fmt.Errorf("atomic with %d SGEs, want 1: %w", len(wr.SGList), ucs.ErrInvalidParam)
	}
	return refusedList(wr.SGList, int(r.maxSGE))
}

// refusedList returns the error in the data pointers of a work request.
func refusedList(sges []verbs.SGE, limit int) error {
	for i, s := range sges {
		if s.Length > MaxSGELen {
			return fmt.Errorf("SGE %d of %d bytes, limit %d: %w", i, s.Length, MaxSGELen, ucs.ErrTooLong)
		}
	}
	return fmt.Errorf("%d SGEs, limit %d: %w", len(sges), limit, ucs.ErrInvalidParam)
}
