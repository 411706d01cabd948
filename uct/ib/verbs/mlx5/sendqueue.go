package mlx5

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// sendOp is how a verbs opcode becomes a WQE. The zero value: it does not.
type sendOp struct {
	op      Opcode
	shape   shape
	immMask uint32 // all ones if the WQE carries the immediate
}

const withImm = 1<<32 - 1

// rcOps and udOps are indexed by verbs.Opcode.
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

// encodeAny writes any WQE, unit by unit, control segment last.
func (q *sendQueue) encodeAny(wr *verbs.SendWR) uint64 {
	op := q.ops[wr.Opcode]
	start := q.pi * SegsPerBB
	pos := start + 1
	b := q.view.BB(q.pi)
	if !q.rc {
		if !putDatagram(b, wr) {
			return 0
		}
		pos += AVLen / SegLen
	}
	switch op.shape {
	case shapeSend:
	case shapeWrite, shapeRead:
		PutRaddr(q.view.seg(pos), wr.RemoteAddr, wr.RKey)
		pos++
	case shapeAtomic:
		pos = q.putAtomic(pos, wr)
	default:
		return 0
	}
	pos = q.putPayload(pos, op.shape, wr)
	if pos == 0 {
		return 0
	}
	word := q.view.want | uint64(uint16(q.pi))<<40 | uint64(op.op)<<32 | uint64(pos-start)
	PutCtrl(b, word, ctrlFlags[wr.Flags&15]|q.always, wr.Imm&op.immMask)
	return word
}

// putDatagram writes the AV, which with the control segment fills the first BB.
func putDatagram(b *BB, wr *verbs.SendWR) bool {
	if wr.AH == nil {
		return false
	}
	ah, ok := wr.AH.Provider().(*addressHandle)
	if !ok {
		return false
	}
	av := (*[AVLen]byte)(b[CtrlLen:])
	*av = ah.av
	PutAVDest(av, wr.RemoteQKey, wr.RemoteQPN&qpnMask)
	return true
}

func (q *sendQueue) putAtomic(pos uint32, wr *verbs.SendWR) uint32 {
	PutRaddr(q.view.seg(pos), wr.RemoteAddr, wr.RKey)
	if wr.Opcode == verbs.OpAtomicFetchAdd {
		PutAtomic(q.view.seg(pos+1), wr.CompareAdd, 0)
	} else {
		PutAtomic(q.view.seg(pos+1), wr.Swap, wr.CompareAdd)
	}
	return pos + 2
}

// putPayload writes the inline segment or the data pointers at unit pos and
// returns the unit after; 0 if wr has too many, too long or the wrong kind.
func (q *sendQueue) putPayload(pos uint32, sh shape, wr *verbs.SendWR) uint32 {
	if wr.Flags&verbs.SendInline != 0 {
		return q.putInline(pos, sh, wr.Inline)
	}
	if len(wr.SGList) > int(q.maxSGE) || (sh == shapeAtomic && len(wr.SGList) != 1) {
		return 0
	}
	for i := range wr.SGList {
		sge := &wr.SGList[i]
		if sge.Length >= zeroIsLen {
			return 0
		}
		if sge.Length != 0 {
			PutData(q.view.seg(pos), *sge)
			pos++
		}
	}
	return pos
}

func (q *sendQueue) putInline(pos uint32, sh shape, data []byte) uint32 {
	if len(data) > int(q.maxInline) || (sh != shapeSend && sh != shapeWrite) {
		return 0
	}
	if len(data) == 0 {
		return pos
	}
	PutInlineHeader(q.view.seg(pos), uint32(len(data)))
	q.inlineAt(pos*SegLen+InlineHdrLen, data)
	return pos + uint32(InlineSegs(len(data)))
}

// explain says why encode refused wr.
//
//go:noinline
func (q *sendQueue) explain(wr *verbs.SendWR) error {
	fail := func(cause error, format string, args ...any) error {
		return &ucs.OpError{TL: "mlx5", Op: "post send", Err: fmt.Errorf(format+": %w", append(args, cause)...)}
	}
	sh := q.ops[wr.Opcode].shape
	inline := wr.Flags&verbs.SendInline != 0
	switch {
	case sh == shapeBad:
		return fail(ucs.ErrInvalidParam, "opcode %d on this type of QP", wr.Opcode)
	case !q.rc && wr.AH == nil:
		return fail(ucs.ErrInvalidParam, "no address handle")
	case inline && sh != shapeSend && sh != shapeWrite:
		return fail(ucs.ErrInvalidParam, "opcode %d cannot be inline", wr.Opcode)
	case inline && len(wr.Inline) > int(q.maxInline):
		return fail(ucs.ErrTooLong, "inline %d bytes, limit %d", len(wr.Inline), q.maxInline)
	case sh == shapeAtomic && len(wr.SGList) != 1:
		return fail(ucs.ErrInvalidParam, "atomic with %d SGEs, want 1", len(wr.SGList))
	case len(wr.SGList) > int(q.maxSGE):
		return fail(ucs.ErrInvalidParam, "%d SGEs, limit %d", len(wr.SGList), q.maxSGE)
	}
	for i, s := range wr.SGList {
		if s.Length >= zeroIsLen {
			return fail(ucs.ErrTooLong, "SGE %d of %d bytes, limit %d", i, s.Length, zeroIsLen-1)
		}
	}
	return fail(ucs.ErrInvalidParam, "address handle of another provider")
}
