package offheap

import "unsafe"

// Pointer returns the address of the first byte: page aligned, valid until Free.
func (b *Block) Pointer() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b.mem)) }
