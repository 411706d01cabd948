package dv

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
)

// register is the doorbell register of a thread domain. All QPs in it share it, and
// take turns with its two BlueFlame buffers, so that successive posts do not meet
// in one write-combining buffer.
type register struct {
	page     unsafe.Pointer // mapped as long as the thread domain lives
	off      uint32         // page offset of the buffer to use next
	step     uint32         // how far the other buffer is, or 0 if there is one place
	bfLen    uint32         // BlueFlame buffer length, or 0 without BlueFlame
	hardware bool           // a device that needs fences
	doorbell prm.Doorbell   // nil on hardware
	// shared: others ring there too, and it is known there which buffer is next.
	shared *mlx5.SharedRegister
	// direct: BlueFlame of a software device, whose page is memory like any other, and
	// nothing is held.
	direct bool
	// holding: queues that are posted to are batched in held, and rung by ring, or
	// when limit WQEs are there.
	batching bool
	limit    int
	batched  []*sendQueue // has room for all queues
	queues   int
	// What direct and holding are between release and hold.
	defaultDirect, defaultBatching bool
	// comps has a watch that is not idle while something is batched; nil if that is only so
	// within a Progress.
	comps *prm.CompRing
}

// hold batches posts, until release: one doorbell then serves all WQEs of a
// queue.
func (r *register) beginBatch() { r.batching, r.direct = true, false }

// release rings for what was batched.
func (r *register) endBatch() {
	r.batching, r.direct = r.defaultBatching, r.defaultDirect
	if len(r.batched) != 0 {
		r.ring()
	}
}

// list batches posts always, up to n WQEs of a queue. The watch of c is then not idle
// until the next poll, so that the next Progress comes to ring.
func (r *register) setPostlist(n int, c *prm.CompRing) {
	r.limit, r.comps = n, c
	r.defaultBatching, r.defaultDirect = true, false
	r.batching, r.direct = true, false
}

// ring rings for what was batched.
func (r *register) ring() {
	for i, q := range r.batched {
		r.batched[i], q.inBatch = nil, false
		r.ringQueue(q)
	}
	r.batched = r.batched[:0]
}

// ringHeld rings for what was batched of q, which stays in held.
func (r *register) ringQueue(q *sendQueue) {
	n := q.batched
	if n == 0 {
		return
	}
	q.batched = 0
	q.dbr.StoreSend(uint16(q.pi))
	r.ringList(q.lastWord, q, q.last, n == 1)
}

// batch notes a post to q while holding: its last WQE begins at BB first.
func (r *register) batch(q *sendQueue, word uint64, first uint32, n int) {
	if !q.inBatch {
		q.inBatch = true
		r.batched = append(r.batched, q)
		if r.comps != nil {
			r.comps.LookAgain()
		}
	}
	q.batched += n
	q.last, q.lastWord = first, word
	if q.batched >= r.limit {
		r.ringQueue(q)
	}
}

// join makes room for one more queue in held.
func (r *register) addQueue() {
	r.queues++
	r.batched = slices.Grow(r.batched, r.queues-len(r.batched))
}

// forget drops a queue that is going away, with what was batched for it.
func (r *register) removeQueue(q *sendQueue) {
	r.queues--
	r.batched = slices.DeleteFunc(r.batched, func(h *sendQueue) bool { return h == q })
}

func newRegister(u mlx5.RawUAR) *register {
	direct := u.Doorbell != nil && u.BFLen != 0 && u.Shared == nil
	return &register{page: u.Page, off: u.Off, step: u.Step, bfLen: u.BFLen, doorbell: u.Doorbell, shared: u.Shared,
		hardware: u.Doorbell == nil, direct: direct, defaultDirect: direct, limit: math.MaxInt}
}

// is reports whether u is this register.
func (r *register) matches(u mlx5.RawUAR) bool {
	return r.page == u.Page && r.off&^r.step == u.Off&^u.Step
}

// take is the page offset to store to.
func (r *register) nextOffset() uint32 {
	if r.shared != nil {
		return r.shared.Take()
	}
	off := r.off
	r.off = off ^ r.step
	return off
}

// stored ends a store and tells a software device of it.
func (r *register) stored(off uint32, word uint64) {
	if r.hardware {
		mmio.FlushWC()
	}
	if r.shared != nil {
		r.shared.Give()
	}
	if r.doorbell != nil {
		r.doorbell.Ring(off, word)
	}
}

// ringBB stores the WQE of one basic block, whose control word is word.
func (r *register) ringBB(word uint64, b *prm.BB) {
	off := r.nextOffset()
	reg := unsafe.Add(r.page, off)
	if r.hardware {
		mmio.ToDevice() // the doorbell record before the register
	}
	if r.bfLen != 0 {
		mmio.Copy64(reg, unsafe.Pointer(b))
	} else {
		mmio.Doorbell64(reg, first8(b))
	}
	r.stored(off, word)
}

// copyBB is ringBB for a direct register.
func (r *register) copyBB(word uint64, b *prm.BB) {
	off := r.off
	r.off = off ^ r.step
	// Sound: off is that of a BlueFlame buffer of 256 bytes in the page, aligned to
	// them. Words, because those have just been stored to b: a wider load would wait
	// for the stores to leave the core.
	copyWords(unsafe.Add(r.page, off), b)
	r.doorbell.Ring(off, word)
}

// copyBBs is copyBB for a WQE of n basic blocks at BB first of q, which are no longer than a BlueFlame buffer.
func (r *register) copyBBs(word uint64, q *sendQueue, first, n uint32) {
	off := r.off
	r.off = off ^ r.step
	for i := range n {
		copyWords(unsafe.Add(r.page, off+i*prm.BBLen), q.BB(first+i)) // sound as in copyBB
	}
	r.doorbell.Ring(off, word)
}

// copyWords copies a basic block to d, which is memory, in words of 8 bytes.
func copyWords(d unsafe.Pointer, b *prm.BB) {
	to, s := (*[8]uint64)(d), (*[8]uint64)(unsafe.Pointer(b))
	to[0], to[1], to[2], to[3] = s[0], s[1], s[2], s[3]
	to[4], to[5], to[6], to[7] = s[4], s[5], s[6], s[7]
}

// ringList stores the first 8 bytes of the last WQE of a list, at BB first of q; or
// all of it, if it is the only one and short.
func (r *register) ringList(word uint64, q *sendQueue, first uint32, only bool) {
	off := r.nextOffset()
	reg := unsafe.Add(r.page, off)
	if r.hardware {
		mmio.ToDevice()
	}
	ds := prm.WordDS(word)
	if only && ds > 1 && ds*prm.SegLen <= r.bfLen {
		for i := uint32(0); i*prm.SegsPerBB < ds; i++ {
			mmio.Copy64(unsafe.Add(reg, i*prm.BBLen), unsafe.Pointer(q.BB(first+i)))
		}
	} else {
		mmio.Doorbell64(reg, first8(q.BB(first)))
	}
	r.stored(off, word)
}

// first8 is the first 8 bytes as they lie in memory.
func first8(b *prm.BB) uint64 { return binary.NativeEndian.Uint64(b[:8]) }
