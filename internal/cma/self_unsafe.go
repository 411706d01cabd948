package cma

import (
	"os"
	"runtime"
	"unsafe"
)

// ReadSelf has the kernel copy from src, memory of this process, to dst, which is as long or
// shorter: what a transfer takes can be measured by it. src must not lie on a goroutine's stack, which
// may move. Errors: those of Vec.Read.
func ReadSelf(dst, src []byte) error {
	// The address of src is a number to the kernel, and stays the one of src as long as that is
	// kept alive.
	err := new(Vec).Read(os.Getpid(), dst, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(src)))))
	runtime.KeepAlive(src)
	return err
}
