package memop

import (
	"unsafe"

	"github.com/gucx/gucx/internal/bulk"
)

// Copy is bulk.Copy.
func Copy(dst, src []byte) int { return bulk.Copy(dst, src) }

// Store copies src to p, where len(src) bytes must be writable. 8 bytes are written with one store.
func Store(p unsafe.Pointer, src []byte) {
	if len(src) == 8 {
		*(*[8]byte)(p) = [8]byte(src)
		return
	}
	storeAny(p, src)
}

//go:noinline
func storeAny(p unsafe.Pointer, src []byte) { Copy(unsafe.Slice((*byte)(p), len(src)), src) }

// Load copies len(dst) bytes at p to dst.
func Load(dst []byte, p unsafe.Pointer) {
	if len(dst) == 8 {
		*(*[8]byte)(dst) = *(*[8]byte)(p)
		return
	}
	loadAny(dst, p)
}

//go:noinline
func loadAny(dst []byte, p unsafe.Pointer) { Copy(dst, unsafe.Slice((*byte)(p), len(dst))) }

// inside reports whether b is a part of whole.
func inside(whole, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return at >= start && at-start <= uintptr(len(whole)) && uintptr(len(b)) <= uintptr(len(whole))-(at-start)
}
