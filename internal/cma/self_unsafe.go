package cma

import (
	"os"
	"runtime"
	"unsafe"
)

// ReadSelf makes the kernel copy len(dst) bytes from src, memory of this process, to dst. It serves to measure the time
// of a transfer. src must not be shorter than dst, and not on a goroutine's stack, which
// may move. Errors: those of Vec.Read.
func ReadSelf(dst, src []byte) error {
	// The kernel gets the address of src as a number. KeepAlive below keeps src at that address until the
	// call has returned.
	err := new(Vec).Read(os.Getpid(), dst, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(src)))))
	runtime.KeepAlive(src)
	return err
}
