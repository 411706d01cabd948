package mmio

import (
	"sync/atomic"
	"unsafe"
)

// LoadAcquire32 loads what StoreRelease32 stored; loads after it see what was
// stored before that. It is an atomic load: a MOV on amd64, LDAR on arm64.
func LoadAcquire32(p unsafe.Pointer) uint32 { return atomic.LoadUint32((*uint32)(p)) }
