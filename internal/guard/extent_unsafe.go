package guard

import (
	"sync/atomic"
	"unsafe"
)

// Extent is the part of a table entry with the position of a region. The owner stores it before it
// publishes the key, and does not change it while a visit is in progress. Peers map it read-only.
type Extent struct {
	Addr  atomic.Uint64 // of the first byte, in the owner's address space
	Len   atomic.Uint64 // in bytes
	Start atomic.Uint64 // offset of the first byte in the arena, if peers map the region
}

// Set sets the extent to n bytes at addr, which are at offset start of the arena.
func (x *Extent) Set(addr, n, start uint64) {
	x.Addr.Store(addr)
	x.Len.Store(n)
	x.Start.Store(start)
}

// Find returns the offset in the region of n bytes at addr; false if they are not all in the region.
func (x *Extent) Find(addr, n uint64) (off uint64, ok bool) {
	off = addr - x.Addr.Load()
	length := x.Len.Load()
	return off, off <= length && n <= length-off
}

// Map returns the mapped part of the region; the zero Span if there is none. size bytes of the arena are mapped at base.
// The first reserved bytes of the arena are never granted, even if the table says so.
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

// At returns the mapped address of n bytes at addr of the peer; nil if they are not all in the span.
func (s *Span) At(addr, n uint64) unsafe.Pointer {
	off := addr + s.Shift
	if off > s.Len || n > s.Len-off {
		return nil
	}
	return unsafe.Add(s.Base, off)
}
