package dv

import (
	"fmt"

	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// PostSend writes the WQEs of a list of work requests and rings once. It is how the
// core posts what has no short way of its own: nearly always one, of one basic block.
// n is how many were posted; err is why wr[n] was not.
func (q *sendQueue) PostSend(wr []verbs.SendWR) (n int, err error) {
	if race.Enabled {
		if err = q.enter(); err != nil {
			return 0, err
		}
		defer q.guard.Leave()
	}
	var word uint64
	var first uint32
	for n < len(wr) {
		w := q.write(&wr[n])
		if w == 0 {
			err = q.explain(&wr[n])
			break
		}
		if len(wr) == 1 && fitsBB(w) {
			q.ringBB(w, q.bb(q.pi), wr[0].ID)
			return 1, nil
		}
		word, first = w, q.pi
		*q.id(first) = wr[n].ID
		q.pi += (uint32(w)&dsMask + mlx5.SegsPerBB - 1) / mlx5.SegsPerBB
		n++
	}
	if n > 0 {
		if q.reg.holding {
			q.reg.gather(q, word, first, n)
		} else {
			q.dbr.StoreSend(uint16(q.pi))
			q.reg.ringList(word, q, first, n == 1)
		}
	}
	return n, err
}

// enter is for builds that notice when goroutines meet in a thread domain, as verbs does
// in its posts; guard.Leave follows unless there is an error.
func (q *sendQueue) enter() error {
	if q.guard.Enter() {
		return nil
	}
	return &ucs.OpError{TL: "mlx5", Op: "post send", Err: fmt.Errorf("qp %#x: %w", q.qpn, mlx5.ErrMet)}
}

// fitsBB reports whether a control word is of a WQE that goes to the register as one
// basic block: one of two to four units. Shorter ones are doorbells.
func fitsBB(word uint64) bool { return uint32(word)&dsMask-2 <= mlx5.SegsPerBB-2 }

// opcodes is indexed by verbs.Opcode; 0 is none that is posted here.
var opcodes = [256]mlx5.Opcode{
	verbs.OpRDMAWrite:        mlx5.OpRDMAWrite,
	verbs.OpRDMAWriteWithImm: mlx5.OpRDMAWriteImm,
	verbs.OpSend:             mlx5.OpSend,
	verbs.OpSendWithImm:      mlx5.OpSendImm,
	verbs.OpRDMARead:         mlx5.OpRDMARead,
	verbs.OpAtomicCmpSwap:    mlx5.OpAtomicCS,
	verbs.OpAtomicFetchAdd:   mlx5.OpAtomicFA,
}

// write writes the WQE of wr at the producer index, the control segment last, and
// returns the control word; 0 if there is no such WQE.
func (q *sendQueue) write(wr *verbs.SendWR) uint64 {
	start := q.pi * mlx5.SegsPerBB
	pos := q.address(start+1, wr)
	if pos == 0 || opcodes[wr.Opcode] == 0 {
		return 0
	}
	if wr.Flags&verbs.SendInline != 0 {
		pos = q.inline(pos, wr)
	} else {
		pos = q.gather(pos, wr.SGList)
	}
	if pos == 0 {
		return 0
	}
	imm := uint32(0)
	if wr.Opcode == verbs.OpSendWithImm || wr.Opcode == verbs.OpRDMAWriteWithImm {
		imm = wr.Imm
	}
	word := q.word(opcodes[wr.Opcode], pos-start)
	mlx5.PutCtrl(q.bb(q.pi), word, ctrlFlags(wr.Flags), imm)
	return word
}

// word is the control word of a WQE of ds units at the producer index.
func (q *sendQueue) word(op mlx5.Opcode, ds uint32) uint64 {
	return q.want | uint64(uint16(q.pi))<<40 | uint64(op)<<32 | uint64(ds)
}

// ctrlFlags translates the flags of a work request.
func ctrlFlags(f verbs.SendFlags) (c mlx5.CtrlFlags) {
	if f&verbs.SendSignaled != 0 {
		c = mlx5.CtrlCQUpdate
	}
	if f&verbs.SendSolicited != 0 {
		c |= mlx5.CtrlSolicited
	}
	if f&verbs.SendFence != 0 {
		c |= mlx5.CtrlFence
	}
	return c
}

// address writes the segments that say where wr goes, from unit pos on, and returns
// the unit after them; 0 if wr is not for this type of QP.
func (q *sendQueue) address(pos uint32, wr *verbs.SendWR) uint32 {
	send := wr.Opcode == verbs.OpSend || wr.Opcode == verbs.OpSendWithImm
	if q.datagram {
		if !send || wr.AH == nil || !q.datagramAddress(wr) {
			return 0
		}
		return pos + mlx5.AVLen/mlx5.SegLen
	}
	if send {
		return pos
	}
	mlx5.PutRaddr(q.seg(pos), wr.RemoteAddr, wr.RKey)
	switch wr.Opcode {
	case verbs.OpAtomicFetchAdd:
		mlx5.PutAtomic(q.seg(pos+1), wr.CompareAdd, 0)
	case verbs.OpAtomicCmpSwap:
		mlx5.PutAtomic(q.seg(pos+1), wr.Swap, wr.CompareAdd)
	default:
		return pos + 1
	}
	return pos + 2
}

// datagramAddress writes the AV, which with the control segment fills the first BB.
func (q *sendQueue) datagramAddress(wr *verbs.SendWR) bool {
	av := (*[mlx5.AVLen]byte)(q.bb(q.pi)[mlx5.CtrlLen:])
	var err error
	if *av, err = mlx5.RawAV(wr.AH); err != nil {
		return false
	}
	mlx5.PutAVDest(av, wr.RemoteQKey, wr.RemoteQPN)
	return true
}

// canInline reports whether the payload of an operation can be in the WQE.
func canInline(op verbs.Opcode) bool { return op <= verbs.OpSendWithImm }

// inline writes an inline segment at unit pos and returns the unit after it.
func (q *sendQueue) inline(pos uint32, wr *verbs.SendWR) uint32 {
	n := len(wr.Inline)
	if n > q.maxInline || !canInline(wr.Opcode) {
		return 0
	}
	if n > 0 {
		mlx5.PutInlineHeader(q.seg(pos), uint32(n))
		q.bytes(pos*mlx5.SegLen+mlx5.InlineHdrLen, wr.Inline)
	}
	return pos + uint32(mlx5.InlineSegs(n))
}

// maxSGELen is the longest SGE: a length of 0 stands for one byte more.
const maxSGELen = 1<<31 - 1

// gather writes data pointers from unit pos on and returns the unit after them.
// Empty pieces are left out: hardware would take a length of 0 for 2 GiB.
func (q *sendQueue) gather(pos uint32, sges []verbs.SGE) uint32 {
	if len(sges) > q.maxSGE {
		return 0
	}
	for i := range sges {
		switch n := sges[i].Length; {
		case n > maxSGELen:
			return 0
		case n > 0:
			mlx5.PutData(q.seg(pos), sges[i])
			pos++
		}
	}
	return pos
}

// explain says why write refused wr.
//
//go:noinline
func (q *sendQueue) explain(wr *verbs.SendWR) error {
	why := func() error {
		switch inline := wr.Flags&verbs.SendInline != 0; {
		case inline && len(wr.Inline) > q.maxInline:
			return fmt.Errorf("inline %d bytes, limit %d: %w", len(wr.Inline), q.maxInline, ucs.ErrTooLong)
		case inline && !canInline(wr.Opcode):
			return fmt.Errorf("opcode %d cannot be inline: %w", wr.Opcode, ucs.ErrInvalidParam)
		case !inline && len(wr.SGList) > q.maxSGE:
			return fmt.Errorf("%d SGEs, limit %d: %w", len(wr.SGList), q.maxSGE, ucs.ErrInvalidParam)
		}
		for i := range wr.SGList {
			if n := wr.SGList[i].Length; n > maxSGELen {
				return fmt.Errorf("SGE of %d bytes, limit %d: %w", n, maxSGELen, ucs.ErrTooLong)
			}
		}
		return fmt.Errorf("opcode %d, address handle %v, on this type of QP: %w", wr.Opcode, wr.AH != nil, ucs.ErrInvalidParam)
	}
	return &ucs.OpError{TL: "mlx5", Op: "write wqe", Err: why()}
}
