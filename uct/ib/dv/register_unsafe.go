package dv

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/internal/mmio"
)

// register is the doorbell register of a thread domain. All its QPs use the two BlueFlame buffers
// of the register alternately, so that consecutive posts do not use the same write-combining
// buffer.
type register struct {
	page     unsafe.Pointer // mapped until the thread domain is freed
	off      uint32         // page offset of the next buffer
	step     uint32         // distance of the other buffer; 0 if there is only one
	bfLen    uint32         // length of a BlueFlame buffer; 0 without BlueFlame
	hardware bool           // the device is hardware, which needs fences
	doorbell prm.Doorbell   // nil on hardware
	// If not nil, queues of other ifaces use the register too, and shared selects the next buffer.
	shared *provider.SharedRegister
	// direct means BlueFlame of a software device, whose page is ordinary memory, without batching.
	direct bool
	// batching means that posts are batched: ring rings for them, or a queue with limit WQEs is
	// rung for.
	batching bool
	limit    int
	batched  []*sendQueue // queues with batched posts; the capacity is sufficient for all queues
	queues   int
	// Values of direct and batching outside beginBatch and endBatch.
	defaultDirect, defaultBatching bool
	// comps is the completion ring whose watch must not be idle while posts are batched; nil if
	// posts are batched only within a Progress.
	comps *prm.CompRing
}

// beginBatch batches posts until endBatch, so that each queue gets one doorbell for all its WQEs.
func (r *register) beginBatch() { r.batching, r.direct = true, false }

// endBatch rings for the batched posts.
func (r *register) endBatch() {
	r.batching, r.direct = r.defaultBatching, r.defaultDirect
	if len(r.batched) != 0 {
		r.ring()
	}
}

// setPostlist batches all posts, up to n WQEs of a queue. While posts are batched, the watch of c
// is not idle, so that the caller calls Progress, which rings.
func (r *register) setPostlist(n int, c *prm.CompRing) {
	r.limit, r.comps = n, c
	r.defaultBatching, r.defaultDirect = true, false
	r.batching, r.direct = true, false
}

// ring rings for the batched posts of all queues.
func (r *register) ring() {
	for i, q := range r.batched {
		r.batched[i], q.inBatch = nil, false
		r.ringQueue(q)
	}
	r.batched = r.batched[:0]
}

// ringQueue rings for the batched posts of q, which remains in batched.
func (r *register) ringQueue(q *sendQueue) {
	n := q.batched
	if n == 0 {
		return
	}
	q.batched = 0
	q.dbr.StoreSend(uint16(q.pi))
	r.ringList(q.lastWord, q, q.last, n == 1)
}

// batch adds a post of n WQEs to q. The last WQE begins at basic block first.
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

// addQueue reserves capacity in batched for one more queue.
func (r *register) addQueue() {
	r.queues++
	r.batched = slices.Grow(r.batched, r.queues-len(r.batched))
}

// removeQueue removes a queue, without ringing for its batched posts.
func (r *register) removeQueue(q *sendQueue) {
	r.queues--
	r.batched = slices.DeleteFunc(r.batched, func(h *sendQueue) bool { return h == q })
}

func newRegister(u provider.RawUAR) *register {
	direct := u.Doorbell != nil && u.BFLen != 0 && u.Shared == nil
	return &register{page: u.Page, off: u.Off, step: u.Step, bfLen: u.BFLen, doorbell: u.Doorbell, shared: u.Shared,
		hardware: u.Doorbell == nil, direct: direct, defaultDirect: direct, limit: math.MaxInt}
}

// matches reports whether u is this register.
func (r *register) matches(u provider.RawUAR) bool {
	return r.page == u.Page && r.off&^r.step == u.Off&^u.Step
}

// nextOffset returns the page offset of the next store, which stored completes.
func (r *register) nextOffset() uint32 {
	if r.shared != nil {
		return r.shared.Take()
	}
	off := r.off
	r.off = off ^ r.step
	return off
}

// stored completes a store, and rings the doorbell of a software device.
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

// ringBB stores a WQE of one basic block, whose control word is word.
func (r *register) ringBB(word uint64, b *prm.BB) {
	off := r.nextOffset()
	reg := unsafe.Add(r.page, off)
	if r.hardware {
		mmio.ToDevice() // orders the doorbell record before the register
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
	// Sound: off is the offset of a BlueFlame buffer of 256 bytes in the page, aligned to 256. The
	// copy uses words, because b was just written in words: a wider load would wait until the
	// stores leave the core.
	copyWords(unsafe.Add(r.page, off), b)
	r.doorbell.Ring(off, word)
}

// copyBBs is copyBB for a WQE of n basic blocks at basic block first of q, which fits in a
// BlueFlame buffer.
func (r *register) copyBBs(word uint64, q *sendQueue, first, n uint32) {
	off := r.off
	r.off = off ^ r.step
	for i := range n {
		copyWords(unsafe.Add(r.page, off+i*prm.BBLen), q.BB(first+i)) // sound as in copyBB
	}
	r.doorbell.Ring(off, word)
}

// copyWords copies a basic block to d, which is ordinary memory, in words of 8 bytes.
func copyWords(d unsafe.Pointer, b *prm.BB) {
	to, s := (*[8]uint64)(d), (*[8]uint64)(unsafe.Pointer(b))
	to[0], to[1], to[2], to[3] = s[0], s[1], s[2], s[3]
	to[4], to[5], to[6], to[7] = s[4], s[5], s[6], s[7]
}

// ringList stores the first 8 bytes of the last WQE of a list, which is at basic block first of q.
// If it is the only WQE and fits in a BlueFlame buffer, ringList stores all of it.
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

// first8 returns the first 8 bytes in memory order.
func first8(b *prm.BB) uint64 { return binary.NativeEndian.Uint64(b[:8]) }
