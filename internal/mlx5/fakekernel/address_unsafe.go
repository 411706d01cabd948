package fakekernel

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
)

// at converts an address that a process has passed. According to the ABI of the kernel, the process must not free the
// memory before it destroys the object that uses it. The address is in this process and, for queues, outside the Go heap.
func at(address uint64) unsafe.Pointer {
	p := uintptr(address)
	return *(*unsafe.Pointer)(unsafe.Pointer(&p))
}

// bytesAt returns the n bytes of memory at an address.
func bytesAt(address, n uint64) []byte { return unsafe.Slice((*byte)(at(address)), n) }

// page returns the memory of a UAR page.
func page(u prm.UAR) []byte { return unsafe.Slice((*byte)(u.Page), prm.UARPageLen) }
