package ucp

import "github.com/gucx/gucx/uct"

// copySlotLen is the longest message that tupleq_copy copies at the sender, in bytes: there the
// copy is cheaper than what the caller gains by it. It is the eager limit of the paper.
const copySlotLen = 8 << 10

const (
	copyChunkSlots = 16 // slots that are allocated at once
	maxCopyChunks  = 64 // of a worker: 8 MiB
)

// copy copies the message, and has the copy sent. It reports false if there is no memory
// for it.
func (s *tupleSend) copy(domain int) bool {
	x := s.t.l.x
	if len(x.slots) == 0 && !x.growSlots() {
		return false
	}
	slot := x.slots[len(x.slots)-1]
	mem := x.memOf(slot)
	d := x.w.ctx.memory.Domains[domain]
	if mem.In(d) == nil && d.Attr.NeedMemH {
		return false
	}
	x.slots = x.slots[:len(x.slots)-1]
	s.slot = slot
	s.r.buf, s.r.mem = slot[:copy(slot, s.r.buf)], nil
	s.iov[0] = uct.IOV{Buf: s.r.buf, Mem: mem.In(d)}
	x.stats.copies.Inc()
	return true
}

// memOf is the memory that a slot is a piece of.
func (x *tuples) memOf(slot []byte) *Mem {
	for _, m := range x.chunk {
		if m.Covers(slot) {
			return m
		}
	}
	return nil
}

// growSlots allocates more slots.
func (x *tuples) growSlots() bool {
	if len(x.chunk) == maxCopyChunks {
		return false
	}
	mem, err := x.w.ctx.memory.Alloc(copyChunkSlots*copySlotLen, uct.AccessLocalWrite)
	if err != nil {
		return false
	}
	x.chunk = append(x.chunk, mem)
	for b := mem.Bytes(); len(b) >= copySlotLen; b = b[copySlotLen:] {
		x.slots = append(x.slots, b[:copySlotLen:copySlotLen])
	}
	return true
}
