package guard

import (
	"sync/atomic"
	"unsafe"
)

// Extent is the part of a table entry that says where a region is. The owner stores it before it
// publishes the key, and leaves it alone until no peer is inside. Peers map it read-only.
type Extent struct {
	Addr  atomic.Uint64 // of the first byte, in the owner's address space
	Len   atomic.Uint64 // in bytes
	Start atomic.Uint64 // offset of the first byte in the arena, if peers map the region
}

// Set makes it n bytes at addr, which are at offset start of the arena.
func (x *Extent) Set(addr, n, start uint64) {
	x.Addr.Store(addr)
	x.Len.Store(n)
	x.Start.Store(start)
}

// Find returns at which offset of the region n bytes at addr are; false if they are not all inside.
func (x *Extent) Find(addr, n uint64) (off uint64, ok bool) {
	off = addr - x.Addr.Load()
	length := x.Len.Load()
	return off, off <= length && n <= length-off
}

// Map returns the part of the region that is mapped, where the arena is mapped at base with size bytes.
// Peers may map nothing of its first reserved bytes, so a table that claims it does not grant them. It is
// the zero Span if nothing is mapped.
func (x *Extent) Map(base unsafe.Pointer, size, reserved uint64) Span {
	at := x.Start.Load()
	if at < reserved || at > size {
		return Span{}
	}
	return Span{Base: unsafe.Add(base, at), Shift: -x.Addr.Load(), Len: min(x.Len.Load(), size-at)}
}

// Span is mapped memory of a peer. It does not change when the peer writes to its table.
type Span struct {
	Base  unsafe.Pointer // where the first byte is mapped
	Shift uint64         // added to an address of the peer it is the offset from Base
	Len   uint64         // in bytes
}

// At returns where n bytes at addr of the peer are mapped; nil if they are not all inside.
func (s *Span) At(addr, n uint64) unsafe.Pointer {
	off := addr + s.Shift
	if off > s.Len || n > s.Len-off {
		return nil
	}
	return unsafe.Add(s.Base, off)
}
