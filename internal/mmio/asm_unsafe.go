//go:build (amd64 || arm64) && !purego

package mmio

import "unsafe"

// ForDevices reports whether the fences and stores of this build are enough for a device: they are assembly.
const ForDevices = true

// Doorbell64 stores 8 bytes to a device register with one store. first8 is the
// bytes as they lie in memory, in the order of the machine that loads them (load
// them with a plain 8-byte load from the WQE): nothing is swapped here. It orders
// nothing; call ToDevice before it and FlushWC after it.
//
// Never use an atomic store instead: on amd64 that is a locked access to
// uncached memory (Documentation/arch/x86/buslock.rst in the Linux kernel).
//
//go:noescape
func Doorbell64(reg unsafe.Pointer, first8 uint64)

// Copy64 copies 64 bytes from src to dst by stores of whole 8-byte words, in
// ascending order, each word once. It is how a WQE gets into a BlueFlame
// register, where memmove must not be used. src and dst may not overlap.
//
//go:noescape
func Copy64(dst, src unsafe.Pointer)

// ToDevice is a store fence: what was stored before it is visible to the device
// before what is stored after it.
func ToDevice()

// FlushWC is a store fence that also empties the write-combining buffers, so
// that a doorbell leaves the core now and not some time later.
func FlushWC()

// FromDevice is a load fence: call it between the load that shows that a device
// has written (the owner bit of a CQE) and the loads of what it has written.
func FromDevice()

// Pause tells the core that the caller polls. On amd64 it takes about 24 ns and
// keeps a polling loop from stealing the cache line that it waits for.
func Pause()

// PrefetchW asks for the cache line at p, which the caller is about to store to: the
// line leaves another core that has it while this one still does something else. It
// touches nothing; any p will do.
//
//go:noescape
func PrefetchW(p unsafe.Pointer)

// PrefetchWLines is PrefetchW of several lines of 64 bytes, of which p is in the first.
//
//go:noescape
func PrefetchWLines(p unsafe.Pointer, lines int)
