package fakekernel

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
)

// at converts an address that a process has passed. By the contract of the kernel's ABI the process must not free the
// memory before it destroys the object that uses it. The address is of this process and, for queues, off the Go heap.
func at(address uint64) unsafe.Pointer {
	p := uintptr(address)
	return *(*unsafe.Pointer)(unsafe.Pointer(&p))
}

// bytesAt is a piece of memory by address and length.
func bytesAt(address, n uint64) []byte { return unsafe.Slice((*byte)(at(address)), n) }

// page is the memory of a UAR page.
func page(u prm.UAR) []byte { return unsafe.Slice((*byte)(u.Page), prm.UARPageLen) }
