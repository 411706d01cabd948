package mlx5

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// sendQueue is the producer of a send ring. Fields of the poster come first, what
// pollers write is on a cache line of its own.
//
//	tail ........ head           work requests: retired, posted
//	     slots[index of the first BB] says which work request is at a BB
type sendQueue struct {
	view      SQView
	slots     unsafe.Pointer // *sendSlot, one for each BB; kept alive by slotMem
	ops       *[256]sendOp
	pi        uint32 // producer index in BBs
	head      uint32
	tailSeen  uint32 // tail when the poster last looked
	maxPost   uint32
	maxInline uint32
	maxSGE    uint32
	always    CtrlFlags // CtrlCQUpdate if all work requests are signaled
	rc        bool
	locked    bool
	bfPlain   bool // BlueFlame for work requests that are not inline, too
	hardware  bool // a device that needs fences
	mu        spinLock
	dbrec     dbrecSlot
	uuar      *uuar
	doorbell  Doorbell // nil on hardware
	slotMem   []sendSlot
	sent      verbs.SendCounts

	_    cpu.CacheLinePad
	tail uint32 // retire stores, postable loads
	_    cpu.CacheLinePad
}

// sendSlot is what a poller needs of the work request that begins at a BB.
type sendSlot struct {
	id   uint64
	head uint32
}

// slot of the BB with the given index, which is masked.
func (q *sendQueue) slot(bb uint32) *sendSlot {
	return (*sendSlot)(unsafe.Add(q.slots, uintptr(bb&q.view.mask)*unsafe.Sizeof(sendSlot{})))
}

// init makes the queue empty, as after a move to RESET.
func (q *sendQueue) init(view SQView, size sqSize) {
	q.view = view
	q.slotMem = make([]sendSlot, size.count)
	q.slots = unsafe.Pointer(unsafe.SliceData(q.slotMem))
	q.maxPost, q.maxInline, q.maxSGE = size.maxPost, size.maxInline, size.maxSGE
}

// reset forgets all work requests.
func (q *sendQueue) reset() {
	q.pi, q.head, q.tailSeen = 0, 0, 0
	mmio.StoreRelease32(unsafe.Pointer(&q.tail), 0)
	q.dbrec.StoreSend(0)
}

// retire says that all work requests up to the one in the slot have ended. Only
// the poller of the QP's send CQ calls it.
func (q *sendQueue) retire(s *sendSlot) {
	mmio.StoreRelease32(unsafe.Pointer(&q.tail), s.head+1)
}

// postable looks again how far the pollers are.
func (q *sendQueue) postable() bool {
	q.tailSeen = mmio.LoadAcquire32(unsafe.Pointer(&q.tail))
	return q.head-q.tailSeen < q.maxPost
}

// post encodes work requests, rings the doorbell once, and then lets a software
// device execute.
func (q *sendQueue) post(wr []verbs.SendWR) (n int, err error) {
	if q.locked {
		q.mu.lock()
	}
	var word uint64
	var first uint32 // BB of the last work request
	bf := q.bfPlain
	for i := range wr {
		if q.head-q.tailSeen >= q.maxPost && !q.postable() {
			err = ucs.ErrNoResource
			break
		}
		r := &wr[i]
		w := q.encode(r)
		if w == 0 {
			err = q.explain(r)
			break
		}
		word, first = w, q.pi
		bf = bf || r.Flags&verbs.SendInline != 0
		s := q.slot(first)
		s.id, s.head = r.ID, q.head
		q.head++
		q.pi += (uint32(w)&dsMask + SegsPerBB - 1) / SegsPerBB
		n = i + 1
	}
	if n == 0 {
		if q.locked {
			q.mu.unlock()
		}
		return 0, err
	}
	q.sent.WQEs += uint64(n)
	q.sent.Doorbells++
	q.dbrec.StoreSend(uint16(q.pi))
	off := q.ring(word, first, bf && n == 1)
	if q.locked {
		q.mu.unlock()
	}
	if q.doorbell != nil {
		q.doorbell.Ring(off, word)
	}
	return n, err
}

// ring stores to the micro-UAR: the WQE that begins at BB first by BlueFlame, or
// its first 8 bytes. It returns the page offset that it stored to.
func (q *sendQueue) ring(word uint64, first uint32, bf bool) uint32 {
	u := q.uuar
	if u.locked {
		u.mu.lock()
	}
	if q.hardware {
		mmio.ToDevice() // the doorbell record before the register
	}
	off := u.base + u.toggle
	reg := unsafe.Add(u.uar.Page, off)
	ds := uint32(word) & dsMask
	if bf && u.blueFlame && ds > 1 && ds*SegLen <= BFBufLen {
		q.sent.BlueFlames++
		for i := uint32(0); i*SegsPerBB < ds; i++ {
			mmio.Copy64(unsafe.Add(reg, i*BBLen), unsafe.Pointer(q.view.BB(first+i)))
		}
	} else {
		mmio.Doorbell64(reg, *(*uint64)(unsafe.Pointer(q.view.BB(first))))
	}
	if q.hardware {
		mmio.FlushWC()
	}
	if u.step != 0 {
		u.toggle ^= u.step
	}
	if u.locked {
		u.mu.unlock()
	}
	return off
}

// ctrlFlags is indexed by SendFlags.
var ctrlFlags = [16]CtrlFlags{
	verbs.SendFence:                                            CtrlFence,
	verbs.SendSignaled:                                         CtrlCQUpdate,
	verbs.SendSolicited:                                        CtrlSolicited,
	verbs.SendFence | verbs.SendSignaled:                       CtrlFence | CtrlCQUpdate,
	verbs.SendFence | verbs.SendSolicited:                      CtrlFence | CtrlSolicited,
	verbs.SendSignaled | verbs.SendSolicited:                   CtrlCQUpdate | CtrlSolicited,
	verbs.SendFence | verbs.SendSignaled | verbs.SendSolicited: CtrlFence | CtrlCQUpdate | CtrlSolicited,

	verbs.SendInline | verbs.SendFence:                                            CtrlFence,
	verbs.SendInline | verbs.SendSignaled:                                         CtrlCQUpdate,
	verbs.SendInline | verbs.SendSolicited:                                        CtrlSolicited,
	verbs.SendInline | verbs.SendFence | verbs.SendSignaled:                       CtrlFence | CtrlCQUpdate,
	verbs.SendInline | verbs.SendFence | verbs.SendSolicited:                      CtrlFence | CtrlSolicited,
	verbs.SendInline | verbs.SendSignaled | verbs.SendSolicited:                   CtrlCQUpdate | CtrlSolicited,
	verbs.SendInline | verbs.SendFence | verbs.SendSignaled | verbs.SendSolicited: CtrlFence | CtrlCQUpdate | CtrlSolicited,
}

// encode writes the WQE of wr at the producer index and returns its control word,
// or 0 if wr is not valid; explain says why. A control word is never 0, because
// it has a length.
func (q *sendQueue) encode(wr *verbs.SendWR) uint64 {
	if wr.Opcode == verbs.OpRDMAWrite && q.rc && wr.Flags&verbs.SendInline != 0 {
		// A short inline RDMA write: one BB, every offset a constant.
		if n := len(wr.Inline); uint(n-1) < BBLen-36 {
			b := q.view.BB(q.pi)
			word := q.view.want | uint64(uint16(q.pi))<<40 | uint64(OpRDMAWrite)<<32 |
				uint64(2+(uint32(n)+InlineHdrLen+SegLen-1)/SegLen)
			be.PutUint64(b[0:8], word)
			be.PutUint64(b[8:16], uint64(ctrlFlags[wr.Flags&15]|q.always)<<32)
			be.PutUint64(b[16:24], wr.RemoteAddr)
			be.PutUint64(b[24:32], uint64(wr.RKey)<<32)
			be.PutUint32(b[32:36], uint32(n)|inlineBit)
			if n == 8 {
				binary.NativeEndian.PutUint64(b[36:44], binary.NativeEndian.Uint64(wr.Inline))
			} else {
				copy(b[36:64], wr.Inline)
			}
			return word
		}
	}
	return q.encodeAny(wr)
}

// inlineAt copies the payload of an inline segment to ring offset off, in bytes
// from the start of time.
func (q *sendQueue) inlineAt(off uint32, data []byte) {
	size := q.view.Count() * BBLen
	at := off & (size - 1)
	n := copy(unsafe.Slice((*byte)(unsafe.Add(q.view.base, uintptr(at))), size-at), data)
	if n < len(data) {
		copy(unsafe.Slice((*byte)(q.view.base), at), data[n:])
	}
}
