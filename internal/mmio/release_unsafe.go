//go:build !amd64 || race || purego

package mmio

import (
	"sync/atomic"
	"unsafe"
)

// StoreRelease32 stores v. A thread that loads v by LoadAcquire32 also loads the values
// that were stored before (STLR on arm64).
func StoreRelease32(p unsafe.Pointer, v uint32) { atomic.StoreUint32((*uint32)(p), v) }

// StoreRelease64 is StoreRelease32 for 8 bytes.
func StoreRelease64(p unsafe.Pointer, v uint64) { atomic.StoreUint64((*uint64)(p), v) }
