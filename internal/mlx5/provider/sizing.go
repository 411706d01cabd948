package provider

import (
	"fmt"
	"math/bits"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Overhead of a WQE before its payload. libmlx5 adds room for a UMR, which this
// driver never posts; so one SGE, or 28 bytes inline, fit in one basic block.
const (
	rdmaOverhead   = prm.CtrlLen + prm.RaddrLen
	udOverhead     = prm.CtrlLen + prm.AVLen
	maxSendWQELen  = prm.MaxDS * prm.SegLen
	maxRecvStride  = 512
	maxRecvSGE     = maxRecvStride / prm.SegLen
	maxSendWQEBBs  = prm.MaxQueueLen
	minRecvRingLen = 64
)

// sqSize is the shape of a send queue.
type sqSize struct {
	count     uint32 // basic blocks, a power of two
	maxPost   uint32 // work requests
	maxInline uint32
	maxSGE    uint32
}

// cap returns the limits of a work request.
func (s sqSize) cap() verbs.QPCap {
	return verbs.QPCap{MaxSendWR: int(s.maxPost), MaxSendSGE: int(s.maxSGE), MaxInline: int(s.maxInline)}
}

// overhead returns the length of the longest header of the service before the payload.
func overhead(typ verbs.QPType) int {
	switch typ {
	case verbs.QPTypeUD:
		return udOverhead
	case verbs.QPTypeXRCSend:
		return prm.XRCLen + rdmaOverhead
	}
	return rdmaOverhead
}

func align(n, to int) int { return (n + to - 1) &^ (to - 1) }

func pow2(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// sizeSQ returns the shape of a queue in which max_send_wr work requests of maximum length
// fit, by libmlx5's formula with the overhead above.
func sizeSQ(typ verbs.QPType, c verbs.QPCap) (sqSize, error) {
	if c.MaxSendWR < 0 || c.MaxSendSGE < 0 || c.MaxInline < 0 {
		return sqSize{}, fmt.Errorf("negative send queue capability: %w", ucs.ErrInvalidParam)
	}
	head := overhead(typ)
	wqe := head + prm.DataLen*max(c.MaxSendSGE, 1)
	if c.MaxInline > 0 {
		wqe = max(wqe, head+align(prm.InlineHdrLen+c.MaxInline, prm.SegLen))
	}
	if typ != verbs.QPTypeUD {
		wqe = max(wqe, head+prm.AtomicLen+prm.DataLen)
	}
	if wqe > maxSendWQELen {
		return sqSize{}, fmt.Errorf("max_send_sge %d, max_inline %d: a work request of %d bytes, limit %d: %w",
			c.MaxSendSGE, c.MaxInline, wqe, maxSendWQELen, ucs.ErrTooLong)
	}
	wqe = align(wqe, prm.BBLen)
	payload := min(wqe, maxSendWQELen) - head
	ring := pow2(max(c.MaxSendWR, 1) * wqe)
	if ring/prm.BBLen > maxSendWQEBBs {
		return sqSize{}, fmt.Errorf("max_send_wr %d: %d basic blocks, limit %d: %w",
			c.MaxSendWR, ring/prm.BBLen, maxSendWQEBBs, ucs.ErrTooLong)
	}
	return sqSize{
		count: uint32(ring / prm.BBLen), maxPost: uint32(ring / wqe),
		maxInline: uint32(payload - prm.InlineHdrLen),
		maxSGE:    uint32(payload / prm.DataLen),
	}, nil
}

// rqSize is the shape of a receive queue or SRQ.
type rqSize struct {
	count  uint32 // entries, a power of two; 0: no queue
	stride uint8  // log2
	maxSGE int
}

func (s rqSize) bytes() int { return int(s.count) << s.stride }

// sizeRQ returns the shape of a queue for wr receives of sge pointers.
func sizeRQ(wr, sge int) (rqSize, error) {
	if err := checkRecv(wr, sge); err != nil {
		return rqSize{}, err
	}
	if wr == 0 {
		return rqSize{}, nil
	}
	stride := pow2(prm.SegLen * max(sge, 1))
	count := max(pow2(wr), minRecvRingLen/stride)
	return rqSize{count: uint32(count), stride: uint8(bits.TrailingZeros(uint(stride))), maxSGE: stride / prm.SegLen}, nil
}

// sizeSRQ is sizeRQ with the next segment in each entry, and one entry that is
// never posted, so that the list has an end.
func sizeSRQ(wr, sge int) (rqSize, error) {
	if err := checkRecv(wr, sge+1); err != nil {
		return rqSize{}, err
	}
	stride := pow2(max(2*prm.SegLen, prm.SRQNextLen+prm.SegLen*sge))
	count := pow2(max(wr, 1) + 1)
	if count > prm.MaxQueueLen {
		return rqSize{}, fmt.Errorf("max_wr %d: limit %d: %w", wr, prm.MaxQueueLen-1, ucs.ErrTooLong)
	}
	return rqSize{count: uint32(count), stride: uint8(bits.TrailingZeros(uint(stride))), maxSGE: stride/prm.SegLen - 1}, nil
}

// sizeCQ returns the number of entries of a queue for n completions: libmlx5 reserves one,
// so that 64 completions need 128 entries.
func sizeCQ(n int) int { return pow2(n + 1) }

func checkRecv(wr, sge int) error {
	if wr < 0 || sge < 0 {
		return fmt.Errorf("negative receive queue capability: %w", ucs.ErrInvalidParam)
	}
	if wr > prm.MaxQueueLen || sge > maxRecvSGE {
		return fmt.Errorf("max_recv_wr %d, max_recv_sge %d: limits %d, %d: %w", wr, sge, prm.MaxQueueLen, maxRecvSGE, ucs.ErrTooLong)
	}
	return nil
}
