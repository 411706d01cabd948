package rxe

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
)

// ring is a queue that this process shares with the kernel. One side produces and the other consumes; each side writes
// only its own index. The caller must serialize calls of this side.
type ring struct {
	header  *ringHeader
	slots   unsafe.Pointer
	mask    uint32
	slotLen uint32
	mem     []byte
	ctx     *uverbs.Context
}

// maxSlotLen is the maximum length of a slot in bytes. The largest send work request is smaller.
const maxSlotLen = 1 << 16

// mapRing maps a queue that the kernel has created. Error: ErrInternal if its slots have fewer than minSlot bytes.
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

// newRing returns the ring in mem. Error: ErrInternal if the header describes slots outside mem or smaller than minSlot
// bytes.
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

// unmap unmaps the queue. r may be nil.
func (r *ring) unmap() error {
	if r == nil {
		return nil
	}
	return r.ctx.Unmap(r.mem)
}

// depth returns the maximum number of entries, one less than the number of slots.
func (r *ring) depth() int { return int(r.mask) }

// slot returns the memory of the slot index modulo the number of slots, which is always in mem.
func (r *ring) slot(index uint32) unsafe.Pointer {
	return unsafe.Add(r.slots, uintptr(index&r.mask)*uintptr(r.slotLen))
}

// producer and consumer load an index. The loads pair with the kernel's stores, so this side sees the entries that the
// kernel wrote before.
func (r *ring) producer() uint32 { return atomic.LoadUint32(&r.header.producer) & r.mask }
func (r *ring) consumer() uint32 { return atomic.LoadUint32(&r.header.consumer) & r.mask }

// publish makes the entries before index visible to the kernel. The store pairs with the kernel's load of the index.
func (r *ring) publish(index uint32) { atomic.StoreUint32(&r.header.producer, index&r.mask) }

// release returns the slots before index to the kernel.
func (r *ring) release(index uint32) { atomic.StoreUint32(&r.header.consumer, index&r.mask) }

// free returns the number of free slots after index, the producer index.
func (r *ring) free(index uint32) uint32 { return (r.consumer() - index - 1) & r.mask }

// sendSlot returns the slot of a send queue.
func (r *ring) sendSlot(index uint32) *sendWQE { return (*sendWQE)(r.slot(index)) }

// recvSlot returns the slot of a receive queue.
func (r *ring) recvSlot(index uint32) *recvWQE { return (*recvWQE)(r.slot(index)) }

// wcSlot returns the slot of a completion queue.
func (r *ring) wcSlot(index uint32) *uverbs.WC { return (*uverbs.WC)(r.slot(index)) }

// sendSGEs returns the SGEs of a send work request, as many as the slot contains.
func (r *ring) sendSGEs(w *sendWQE) []sge {
	return unsafe.Slice((*sge)(unsafe.Add(unsafe.Pointer(w), sendWQELen)), (int(r.slotLen)-sendWQELen)/sgeLen)
}

// sendInline returns the bytes for inline data of a send work request, up to the end of the slot.
func (r *ring) sendInline(w *sendWQE) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(w), sendWQELen)), int(r.slotLen)-sendWQELen)
}

// recvSGEs returns the SGEs of a receive, as many as the slot contains.
func (r *ring) recvSGEs(w *recvWQE) []sge {
	return unsafe.Slice((*sge)(unsafe.Add(unsafe.Pointer(w), recvWQELen)), (int(r.slotLen)-recvWQELen)/sgeLen)
}

func (w *sendWQE) setRDMA(a rdmaArgs)         { *(*rdmaArgs)(unsafe.Pointer(&w.args)) = a }
func (w *sendWQE) setAtomic(a atomicArgs)     { *(*atomicArgs)(unsafe.Pointer(&w.args)) = a }
func (w *sendWQE) setDatagram(a datagramArgs) { *(*datagramArgs)(unsafe.Pointer(&w.args)) = a }
