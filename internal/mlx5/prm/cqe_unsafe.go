package prm

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
)

// Tail loads the last word; what the device wrote before it is visible after.
// The load pairs with the store in Write.
func (s *CQESlot) Tail() Tail {
	return Tail(swap32(mmio.LoadAcquire32(unsafe.Pointer(&s.tail))))
}

// storeTail passes the entry to software; t is in host order.
func (s *CQESlot) storeTail(t uint32) {
	mmio.StoreRelease32(unsafe.Pointer(&s.tail), swap32(t))
}

// TailWord is the last word, as it lies in memory: for a watch.
func (s *CQESlot) TailWord() *uint32 { return &s.tail }
