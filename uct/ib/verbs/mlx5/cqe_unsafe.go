package mlx5

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
)

// Tail loads the last word; what the device wrote before it is visible after.
// The load pairs with the store in Write.
func (s *CQESlot) Tail() Tail {
	return Tail(swap32(mmio.LoadAcquire32(unsafe.Pointer(&s[60]))))
}

// storeTail passes the entry to software; t is in host order.
func (s *CQESlot) storeTail(t uint32) {
	mmio.StoreRelease32(unsafe.Pointer(&s[60]), swap32(t))
}

// word is the last word, as it lies in memory.
func (s *CQESlot) word() *uint32 { return (*uint32)(unsafe.Pointer(&s[60])) }

// raw is the word as it lies in memory.
func (t Tail) raw() uint32 { return swap32(uint32(t)) }
