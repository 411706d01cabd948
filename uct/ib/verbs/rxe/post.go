package rxe

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// atomicLen is the length of the operand of an atomic, in bytes.
const atomicLen = 8

// maxSGELen is the limit of the length of an SGE in bytes, as documented at PostSend of package verbs.
const maxSGELen = 1 << 31

// briefLen is the maximum cost of a post for which PostSend runs the doorbell command with brief. The cost is the payload in bytes;
// each packet counts at least packetCost. rxe sends the packets in the command: it copies the payload, computes checksums and, for a
// peer on the same device, stores the payload in the peer's memory. The command also sends earlier work requests that are still in
// the send queue; the cost does not include them.
const (
	briefLen   = 64 << 10
	packetCost = 4 << 10
)

// PostSend implements verbs.QPProvider.
func (q *queuePair) PostSend(wrs []verbs.SendWR) (n int, err error) {
	q.sendMu.Lock()
	pi := q.pi
	free := q.sq.free(pi)
	cost := 0
	for n < len(wrs) {
		if free == 0 {
			err = ucs.ErrNoResource
			break
		}
		if err = q.writeSend(pi, &wrs[n]); err != nil {
			break
		}
		cost += max(int(q.sq.sendSlot(pi).dma.len), packetCost)
		pi = (pi + 1) & q.sq.mask
		free--
		n++
	}
	if n > 0 {
		q.pi = pi
		q.sq.publish(pi)
	}
	q.sendMu.Unlock()
	if n > 0 {
		if ringErr := q.doorbell.Run(cost <= briefLen); ringErr != nil {
			return n, ringErr
		}
	}
	return n, err
}

// writeSend writes a work request to the ring, which must not be full.
func (q *queuePair) writeSend(pi uint32, wr *verbs.SendWR) error {
	w := q.sq.sendSlot(pi)
	*w = sendWQE{wrID: wr.ID, opcode: uint32(wr.Opcode), flags: uint32(wr.Flags), ssn: q.ssn}
	if q.sigAll {
		w.flags |= uint32(verbs.SendSignaled)
	}
	if err := q.writeArgs(w, wr); err != nil {
		return err
	}
	if err := q.writePayload(w, wr); err != nil {
		return err
	}
	q.ssn++
	return nil
}

// writeArgs writes the fields that depend on the opcode. Error: ErrInvalidParam if the QP does not have the opcode.
func (q *queuePair) writeArgs(w *sendWQE, wr *verbs.SendWR) error {
	if q.typ == verbs.QPTypeUD {
		if wr.Opcode != verbs.OpSend && wr.Opcode != verbs.OpSendWithImm || wr.AH == nil {
			return q.refuse(wr)
		}
		w.setDatagram(datagramArgs{qpn: wr.RemoteQPN, qkey: wr.RemoteQKey, ah: wr.AH.Provider().(*addressHandle).number})
		w.imm = fromBE32(wr.Imm)
		return nil
	}
	switch wr.Opcode {
	case verbs.OpSend:
		return nil
	case verbs.OpSendWithImm:
		w.imm = fromBE32(wr.Imm)
		return nil
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteWithImm, verbs.OpRDMARead:
		w.imm = fromBE32(wr.Imm)
		w.setRDMA(rdmaArgs{remoteAddr: wr.RemoteAddr, rkey: wr.RKey})
	case verbs.OpAtomicCmpSwap, verbs.OpAtomicFetchAdd:
		w.setAtomic(atomicArgs{remoteAddr: wr.RemoteAddr, compareAdd: wr.CompareAdd, swap: wr.Swap, rkey: wr.RKey})
	default:
		return q.refuse(wr)
	}
	w.iova = wr.RemoteAddr
	return nil
}

// writePayload writes the inline data or the SGEs.
func (q *queuePair) writePayload(w *sendWQE, wr *verbs.SendWR) error {
	if wr.Flags&verbs.SendInline != 0 {
		return q.writeInline(w, wr)
	}
	if wr.Opcode == verbs.OpAtomicCmpSwap || wr.Opcode == verbs.OpAtomicFetchAdd {
		if len(wr.SGList) != 1 {
			return q.refuse(wr)
		}
		s := &wr.SGList[0]
		q.sq.sendSGEs(w)[0] = sge{addr: s.Addr, len: atomicLen, lkey: s.LKey}
		w.dma = dmaInfo{len: atomicLen, resid: atomicLen, numSGE: 1}
		return nil
	}
	if err := checkSGEs(wr.SGList, q.maxSGE); err != nil {
		return err
	}
	w.dma = putSGEs(q.sq.sendSGEs(w), wr.SGList)
	return nil
}

func (q *queuePair) writeInline(w *sendWQE, wr *verbs.SendWR) error {
	if wr.Opcode >= verbs.OpRDMARead {
		return q.refuse(wr)
	}
	if len(wr.Inline) > q.maxInline {
		return errTooLong("inline bytes", len(wr.Inline), q.maxInline)
	}
	n := uint32(copy(q.sq.sendInline(w), wr.Inline))
	w.dma = dmaInfo{len: n, resid: n}
	return nil
}

// refuse returns the error for a work request that the QP does not support.
//
//go:noinline
func (q *queuePair) refuse(wr *verbs.SendWR) error {
	return opError("post send", fmt.Errorf("opcode %d on a QP of type %v, flags %#x, %d SGEs, AH %t: %w",
		wr.Opcode, q.typ, wr.Flags, len(wr.SGList), wr.AH != nil, ucs.ErrInvalidParam))
}

//go:noinline
func errTooLong(what string, n, limit int) error {
	return opError("post", fmt.Errorf("%s %d, limit %d: %w", what, n, limit, ucs.ErrTooLong))
}

//go:noinline
func errTooMany(n, limit int) error {
	return opError("post", fmt.Errorf("%d SGEs, limit %d: %w", n, limit, ucs.ErrInvalidParam))
}

// checkSGEs checks the number and the lengths of SGEs. Their total length must fit into 32 bits, as in the kernel.
func checkSGEs(list []verbs.SGE, limit int) error {
	if len(list) > limit {
		return errTooMany(len(list), limit)
	}
	total := uint64(0)
	for i := range list {
		if list[i].Length >= maxSGELen {
			return errTooLong("bytes in an SGE", int(list[i].Length), maxSGELen-1)
		}
		total += uint64(list[i].Length)
	}
	if total > 1<<32-1 {
		return errTooLong("bytes", int(total), 1<<32-1)
	}
	return nil
}

// putSGEs writes the SGEs that are not empty. The caller must have called checkSGEs.
func putSGEs(to []sge, list []verbs.SGE) (d dmaInfo) {
	for i := range list {
		s := &list[i]
		if s.Length == 0 {
			continue
		}
		to[d.numSGE] = sge{addr: s.Addr, len: s.Length, lkey: s.LKey}
		d.numSGE++
		d.len += s.Length
	}
	d.resid = d.len
	return d
}

// writeRecv writes a receive to the ring, which must not be full. The caller must have called checkSGEs.
func (r *ring) writeRecv(pi uint32, wrID uint64, list []verbs.SGE) {
	w := r.recvSlot(pi)
	*w = recvWQE{wrID: wrID, dma: putSGEs(r.recvSGEs(w), list)}
}

// PostRecv implements verbs.QPProvider. In ERR it calls the kernel, which flushes the posted receives.
func (q *queuePair) PostRecv(wrs []verbs.RecvWR) (n int, err error) {
	if q.rq == nil {
		return 0, opError("post receive", fmt.Errorf("the QP has an SRQ: %w", ucs.ErrInvalidParam))
	}
	q.recvMu.Lock()
	pi := q.rpi
	for n < len(wrs) {
		if q.rq.free(pi) == 0 {
			err = ucs.ErrNoResource
			break
		}
		if err = checkSGEs(wrs[n].SGList, q.maxRecvSGE); err != nil {
			break
		}
		q.rq.writeRecv(pi, wrs[n].ID, wrs[n].SGList)
		pi = (pi + 1) & q.rq.mask
		n++
	}
	if n > 0 {
		q.rpi = pi
		q.rq.publish(pi)
	}
	q.recvMu.Unlock()
	if n > 0 && (q.failed.Load() || q.state.Load() == uint32(verbs.QPStateErr)) {
		if flushErr := q.toERR(); flushErr != nil {
			return n, flushErr
		}
	}
	return n, err
}
