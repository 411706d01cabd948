//go:build !(amd64 || arm64) || purego

package mmio

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// ForDevices reports whether the fences and stores of this build are enough for a device: they are assembly.
const ForDevices = false

// fence is the word of the fences of this build: an atomic operation on any word
// orders all accesses of the CPU to normal memory.
var fence atomic.Uint32

// Doorbell64 stores the 8 bytes, without a change of their order, with one store.
func Doorbell64(reg unsafe.Pointer, first8 uint64) {
	atomic.StoreUint64((*uint64)(reg), first8)
}

// Copy64 copies 64 bytes in ascending words of 8, each stored once.
func Copy64(dst, src unsafe.Pointer) {
	d, s := (*[8]uint64)(dst), (*[8]uint64)(src)
	for i := range d {
		atomic.StoreUint64(&d[i], s[i])
	}
}

// ToDevice orders stores before it before stores after it, between CPUs.
func ToDevice() { fence.Add(1) }

// FlushWC is ToDevice; this build has no write-combining memory.
func FlushWC() { fence.Add(1) }

// FromDevice orders loads before it before accesses after it, between CPUs.
func FromDevice() { fence.Add(1) }

// Pause calls runtime.Gosched, because Go has no instruction for it.
func Pause() { runtime.Gosched() }

// PrefetchW does nothing, because Go has no instruction for it.
func PrefetchW(unsafe.Pointer) {}

// PrefetchWLines does nothing, as PrefetchW.
func PrefetchWLines(unsafe.Pointer, int) {}
