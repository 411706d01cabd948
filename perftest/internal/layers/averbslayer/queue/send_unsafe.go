package queue

import (
	"encoding/binary"
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Send is the send queue of an RC QP. It does not check for room: the caller must not post more
// outstanding work requests than the QP was created for.
//
// numbers has an element for each basic block of the ring, a power of two. Every index is masked,
// so pointers stay in the ring. The ring is mapped until the QP is closed.
type Send struct {
	prm.SendRing
	// Posted is the number of posted work requests, Done the number of those up to the last polled
	// completion.
	Posted, Done uint64

	numbers []uint64 // number of the work request that begins at each basic block
	pi      uint32   // number of written basic blocks
	dbrec   prm.DBRec

	page      unsafe.Pointer
	off, step uint32       // page offset of the next BlueFlame buffer; distance to the other buffer
	bfLen     uint32       // length of a BlueFlame buffer in bytes; 0 without BlueFlame
	doorbell  prm.Doorbell // of a software device; nil on hardware
	shared    *provider.SharedRegister
}

// Open initializes q for the send queue of qp, to which nothing may have been posted. It returns
// ErrUnsupported if the queues of qp are not those of mlx5.
func (q *Send) Open(qp *verbs.QP) error {
	raw, err := provider.RawQPOf(qp)
	if err != nil {
		return err
	}
	view, err := prm.NewSQView(raw.SQ.Buf, raw.SQ.Count, raw.QPN, qp.Type())
	if err != nil {
		return err
	}
	*q = Send{SendRing: prm.NewSendRing(view, qp.Cap(), false), numbers: make([]uint64, raw.SQ.Count), dbrec: raw.DBRec,
		page: raw.UAR.Page, off: raw.UAR.Off, step: raw.UAR.Step, bfLen: raw.UAR.BFLen,
		doorbell: raw.UAR.Doorbell, shared: raw.UAR.Shared}
	return nil
}

// Write posts an inline RDMA write of data: at least 1 byte, and at most the inline limit of the
// QP. data may be reused on return.
func (q *Send) Write(flags prm.CtrlFlags, raddr uint64, rkey uint32, data []byte) {
	b := q.BB(q.pi)
	word := q.Word(q.pi, prm.OpRDMAWrite, prm.ShortSegs(len(data)))
	prm.PutShortWrite(b, word, flags, raddr, rkey)
	if len(data) <= prm.MaxShortLen {
		prm.PutShortData(b, data)
	} else {
		q.PutWriteData(q.pi, data)
	}
	q.post(word)
}

// Post posts a work request. It fails if wr is not valid.
func (q *Send) Post(wr *verbs.SendWR) error {
	word := q.Encode(q.pi, wr, nil)
	if word == 0 {
		return q.Refused(wr, nil)
	}
	q.post(word)
	return nil
}

// post passes a work request to the device: word is its control word, pi its index.
func (q *Send) post(word uint64) {
	first, n := q.pi, prm.WordBBs(word)
	q.Posted++
	*q.number(first) = q.Posted
	q.pi = first + n
	q.dbrec.StoreSend(uint16(q.pi))
	if q.doorbell == nil || q.shared != nil || n*prm.BBLen > q.bfLen {
		q.ring(word, first)
		return
	}
	// The register page of a software device is memory: plain stores without fence are sufficient.
	off := q.off
	q.off = off ^ q.step
	for i := range n {
		// Sound: off is the offset of a BlueFlame buffer of bfLen bytes in the page.
		copyBB(unsafe.Add(q.page, off+i*prm.BBLen), q.BB(first+i))
	}
	q.doorbell.Ring(off, word)
}

// copyBB copies a basic block in words of the size in which it was written.
func copyBB(to unsafe.Pointer, b *prm.BB) {
	d, s := (*[8]uint64)(to), (*[8]uint64)(unsafe.Pointer(b))
	d[0], d[1], d[2], d[3] = s[0], s[1], s[2], s[3]
	d[4], d[5], d[6], d[7] = s[4], s[5], s[6], s[7]
}

// ring writes the doorbell register of hardware, if other queues share the register or the work
// request does not fit into a BlueFlame buffer.
//
//go:noinline
func (q *Send) ring(word uint64, first uint32) {
	off := q.off
	if q.shared != nil {
		off = q.shared.Take()
	} else {
		q.off = off ^ q.step
	}
	reg := unsafe.Add(q.page, off)
	if q.doorbell == nil {
		mmio.ToDevice() // the doorbell record is written before the register
	}
	n := prm.WordBBs(word)
	if n*prm.BBLen <= q.bfLen {
		for i := range n {
			mmio.Copy64(unsafe.Add(reg, i*prm.BBLen), unsafe.Pointer(q.BB(first+i)))
		}
	} else {
		mmio.Doorbell64(reg, binary.NativeEndian.Uint64(q.BB(first)[:8]))
	}
	if q.doorbell == nil {
		mmio.FlushWC()
	}
	if q.shared != nil {
		q.shared.Give()
	}
	if q.doorbell != nil {
		q.doorbell.Ring(off, word)
	}
}

// number returns the number of the work request that begins at basic block i.
func (q *Send) number(i uint32) *uint64 {
	return (*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(q.numbers)), uintptr(i&(q.Count()-1))*8))
}
