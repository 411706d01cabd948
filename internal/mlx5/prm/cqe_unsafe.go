package prm

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
)

// Tail loads the last word. It pairs with the store in Write: later loads return what the device has written
// before that store.
func (s *CQESlot) Tail() Tail {
	return Tail(swap32(mmio.LoadAcquire32(unsafe.Pointer(&s.tail))))
}

// storeTail transfers the entry to software; t is in host order.
func (s *CQESlot) storeTail(t uint32) {
	mmio.StoreRelease32(unsafe.Pointer(&s.tail), swap32(t))
}

// TailWord returns the last word in big-endian order, for a watch.
func (s *CQESlot) TailWord() *uint32 { return &s.tail }
