//go:build (amd64 || arm64) && !purego

package mmio

import "unsafe"

// ForDevices reports whether the fences and stores of this build are enough for a device: they are assembly.
const ForDevices = true

// Doorbell64 stores 8 bytes to a device register with one store. first8 is the result of
// a plain 8-byte load from the WQE: Doorbell64 does not change the order of bytes. It is
// no fence; call ToDevice before it and FlushWC after it.
//
// Never use an atomic store instead: on amd64 that is a locked access to
// uncached memory (Documentation/arch/x86/buslock.rst in the Linux kernel).
//
//go:noescape
func Doorbell64(reg unsafe.Pointer, first8 uint64)

// Copy64 copies 64 bytes from src to dst by stores of whole 8-byte words, in
// ascending order, each word once. Use it to copy a WQE to a BlueFlame
// register, for which memmove must not be used. src and dst must not overlap.
//
//go:noescape
func Copy64(dst, src unsafe.Pointer)

// ToDevice is a store fence: stores before it are visible to the device
// before stores after it.
func ToDevice()

// FlushWC is a store fence that also flushes the write-combining buffers, so
// that the core sends a doorbell at once.
func FlushWC()

// FromDevice is a load fence: call it after the load which shows that a device
// has written (the owner bit of a CQE), and before the loads of the data.
func FromDevice()

// Pause is the instruction for polling loops. On amd64 it takes about 24 ns, and
// the loop requests the cache line that it polls less often.
func Pause()

// PrefetchW requests the cache line at p, to which the caller will store soon: another core that has
// the line transfers it while this core executes other instructions. It has no other effect and does not
// fault; p may be any address.
//
//go:noescape
func PrefetchW(p unsafe.Pointer)

// PrefetchWLines is PrefetchW for several lines of 64 bytes; p is in the first one.
//
//go:noescape
func PrefetchWLines(p unsafe.Pointer, lines int)
