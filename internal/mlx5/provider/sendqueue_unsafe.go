package provider

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// sendQueue is the producer of a send ring. The fields of the poster are first. The field that
// pollers write has a cache line of its own.
//
//	tail ........ head           work requests: retired, posted
//	     slots[index of the first BB] is the work request at that BB
type sendQueue struct {
	wqes      prm.SendRing
	slots     unsafe.Pointer // *sendSlot, one for each BB; kept alive by slotMem
	pi        uint32         // producer index in BBs
	head      uint32
	tailSeen  uint32 // tail when the poster last loaded it
	maxPost   uint32
	datagrams bool
	locked    bool
	bfPlain   bool // BlueFlame also for work requests that are not inline
	hardware  bool // a device that needs fences
	mu        spinLock
	dbrec     dbrecSlot
	uuar      *uuar
	doorbell  prm.Doorbell // nil on hardware
	slotMem   []sendSlot
	sent      verbs.SendCounts

	_    cpu.CacheLinePad
	tail uint32 // retire stores, postable loads
	_    cpu.CacheLinePad
}

// sendSlot is the data for pollers of the work request that begins at a BB.
type sendSlot struct {
	id   uint64
	head uint32
}

// slot of the BB with the given index, which is masked.
func (q *sendQueue) slot(bb uint32) *sendSlot {
	return (*sendSlot)(unsafe.Add(q.slots, uintptr(bb&(q.wqes.Count()-1))*unsafe.Sizeof(sendSlot{})))
}

// init makes the queue empty, as after a move to RESET.
func (q *sendQueue) init(wqes prm.SendRing, size sqSize) {
	q.wqes = wqes
	q.slotMem = make([]sendSlot, size.count)
	q.slots = unsafe.Pointer(unsafe.SliceData(q.slotMem))
	q.maxPost = size.maxPost
}

// reset drops all work requests.
func (q *sendQueue) reset() {
	q.pi, q.head, q.tailSeen = 0, 0, 0
	mmio.StoreRelease32(unsafe.Pointer(&q.tail), 0)
	q.dbrec.StoreSend(0)
}

// retire retires all work requests up to the one in the slot. Only
// the poller of the QP's send CQ calls it. The store is a release store after the reads of the
// slot and pairs with the load in postable: post writes to the slot only after it.
func (q *sendQueue) retire(s *sendSlot) {
	mmio.StoreRelease32(unsafe.Pointer(&q.tail), s.head+1)
}

// postable loads tail again; the load pairs with the store in retire.
func (q *sendQueue) postable() bool {
	q.tailSeen = mmio.LoadAcquire32(unsafe.Pointer(&q.tail))
	return q.head-q.tailSeen < q.maxPost
}

// post encodes work requests and rings the doorbell once, in which a software
// device executes them.
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
		w := q.wqes.Encode(q.pi, r, q.av(r))
		if w == 0 {
			err = q.explain(r)
			break
		}
		word, first = w, q.pi
		bf = bf || r.Flags&verbs.SendInline != 0
		q.advance(first, r.ID, w)
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

// advance moves the producer index past the work request that is encoded at pi, from basic block
// first. w is its first word.
func (q *sendQueue) advance(first uint32, id, w uint64) {
	s := q.slot(first)
	s.id, s.head = id, q.head
	q.head++
	q.pi += prm.WordBBs(w)
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
	ds := prm.WordDS(word)
	if bf && u.blueFlame && ds > 1 && ds*prm.SegLen <= prm.BFBufLen {
		q.sent.BlueFlames++
		for i := uint32(0); i*prm.SegsPerBB < ds; i++ {
			mmio.Copy64(unsafe.Add(reg, i*prm.BBLen), unsafe.Pointer(q.wqes.BB(first+i)))
		}
	} else {
		mmio.Doorbell64(reg, binary.NativeEndian.Uint64(q.wqes.BB(first)[:8]))
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
