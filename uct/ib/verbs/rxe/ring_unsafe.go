package rxe

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
)

// ring is a queue that is shared with the kernel. One side produces and the other consumes; neither changes the
// index of the other. Its lock is the caller's.
type ring struct {
	header  *ringHeader
	slots   unsafe.Pointer
	mask    uint32
	slotLen uint32
	mem     []byte
	ctx     *uverbs.Context
}

// maxSlotLen bounds the length of a slot, in bytes: the longest send work request has less.
const maxSlotLen = 1 << 16

// mapRing maps a queue that the kernel has made, whose slots have minSlot bytes or more.
func mapRing(ctx *uverbs.Context, info mmapInfo, minSlot int) (*ring, error) {
	mem, err := ctx.Map(info.Offset, int(info.Len))
	if err != nil {
		return nil, err
	}
	r, err := newRing(mem, minSlot)
	if err != nil {
		_ = ctx.Unmap(mem)
		return nil, fmt.Errorf("%s: map queue: %w", ctx.Name, err)
	}
	r.ctx = ctx
	return r, nil
}

// newRing checks the header of a queue in mem. ErrInternal if the slots are not in mem.
func newRing(mem []byte, minSlot int) (*ring, error) {
	if len(mem) < ringHeaderLen {
		return nil, fmt.Errorf("%w: queue of %d bytes", ucs.ErrInternal, len(mem))
	}
	h := (*ringHeader)(unsafe.Pointer(&mem[0]))
	log2, mask := h.log2SlotLen, h.indexMask
	if log2 >= 32 || mask == 1<<32-1 {
		return nil, fmt.Errorf("%w: queue with slots of 2^%d bytes, mask %#x", ucs.ErrInternal, log2, mask)
	}
	slotLen, count := uint64(1)<<log2, uint64(mask)+1
	switch {
	case slotLen < uint64(minSlot) || slotLen > maxSlotLen || count&(count-1) != 0 || count < 2:
		return nil, fmt.Errorf("%w: queue of %d slots of %d bytes, want slots of %d", ucs.ErrInternal, count, slotLen, minSlot)
	case slotLen*count > uint64(len(mem)-ringHeaderLen):
		return nil, fmt.Errorf("%w: queue of %d slots of %d bytes in %d bytes", ucs.ErrInternal, count, slotLen, len(mem))
	}
	return &ring{header: h, slots: unsafe.Pointer(&mem[ringHeaderLen]), mask: mask, slotLen: uint32(slotLen), mem: mem}, nil
}

// unmap frees the queue; nil is none.
func (r *ring) unmap() error {
	if r == nil {
		return nil
	}
	return r.ctx.Unmap(r.mem)
}

// depth is how many entries fit.
func (r *ring) depth() int { return int(r.mask) }

// slot is the memory of an entry. It is in mem, whatever the index is.
func (r *ring) slot(index uint32) unsafe.Pointer {
	return unsafe.Add(r.slots, uintptr(index&r.mask)*uintptr(r.slotLen))
}

// producer and consumer load the indexes: what was stored before them is seen.
func (r *ring) producer() uint32 { return atomic.LoadUint32(&r.header.producer) & r.mask }
func (r *ring) consumer() uint32 { return atomic.LoadUint32(&r.header.consumer) & r.mask }

// publish passes the entries before index to the kernel. It pairs with the kernel's load of the index.
func (r *ring) publish(index uint32) { atomic.StoreUint32(&r.header.producer, index&r.mask) }

// release gives the entries before index back to the kernel.
func (r *ring) release(index uint32) { atomic.StoreUint32(&r.header.consumer, index&r.mask) }

// free is how many entries fit behind index, the producer's.
func (r *ring) free(index uint32) uint32 { return (r.consumer() - index - 1) & r.mask }

// sendSlot is an entry of a send queue.
func (r *ring) sendSlot(index uint32) *sendWQE { return (*sendWQE)(r.slot(index)) }

// recvSlot is an entry of a receive queue.
func (r *ring) recvSlot(index uint32) *recvWQE { return (*recvWQE)(r.slot(index)) }

// wcSlot is an entry of a completion queue.
func (r *ring) wcSlot(index uint32) *uverbs.WC { return (*uverbs.WC)(r.slot(index)) }

// sendSGEs are the SGEs of a send work request, as many as fit in the slot.
func (r *ring) sendSGEs(w *sendWQE) []sge {
	return unsafe.Slice((*sge)(unsafe.Add(unsafe.Pointer(w), sendWQELen)), (int(r.slotLen)-sendWQELen)/sgeLen)
}

// sendInline is the inline data of a send work request, as long as fits in the slot.
func (r *ring) sendInline(w *sendWQE) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(w), sendWQELen)), int(r.slotLen)-sendWQELen)
}

// recvSGEs are the SGEs of a receive, as many as fit in the slot.
func (r *ring) recvSGEs(w *recvWQE) []sge {
	return unsafe.Slice((*sge)(unsafe.Add(unsafe.Pointer(w), recvWQELen)), (int(r.slotLen)-recvWQELen)/sgeLen)
}

func (w *sendWQE) setRDMA(a rdmaArgs)         { *(*rdmaArgs)(unsafe.Pointer(&w.args)) = a }
func (w *sendWQE) setAtomic(a atomicArgs)     { *(*atomicArgs)(unsafe.Pointer(&w.args)) = a }
func (w *sendWQE) setDatagram(a datagramArgs) { *(*datagramArgs)(unsafe.Pointer(&w.args)) = a }
