package mmio

import (
	"sync/atomic"
	"unsafe"
)

// LoadAcquire32 loads a value of StoreRelease32. Later loads return the values that were
// stored before that store. It is an atomic load: a MOV on amd64, LDAR on arm64.
func LoadAcquire32(p unsafe.Pointer) uint32 { return atomic.LoadUint32((*uint32)(p)) }
