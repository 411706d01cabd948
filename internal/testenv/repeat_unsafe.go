package testenv

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// MemoryUser is the part of testing.TB that RepeatedMemory uses.
type MemoryUser interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
	Cleanup(func())
}

// RepeatLen is the number of bytes of memory of a mapping of RepeatedMemory.
const RepeatLen = 2 << 20

// RepeatedMemory maps RepeatLen bytes again and again into n bytes of addresses, so that a transfer of GiB uses little
// memory. A byte that is written at i also shows at i + RepeatLen. All pages are mapped at once, because a page fault in a virtual
// machine takes several us. The mapping ends with the test.
func RepeatedMemory(t MemoryUser, n int) []byte {
	t.Helper()
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("repeated memory of %d bytes: %s: %v", n, what, err)
			t.FailNow()
		}
	}
	fd, err := unix.MemfdCreate("repeated", unix.MFD_CLOEXEC)
	check("create a file", err)
	defer unix.Close(fd)
	check("set its size", unix.Ftruncate(fd, RepeatLen))
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	check("reserve addresses", err)
	t.Cleanup(func() { check("unmap", unix.MunmapPtr(base, uintptr(n))) })
	for off := 0; off < n; off += RepeatLen {
		// Sound: the address lies in the mapping above, which this call replaces in part.
		_, err := unix.MmapPtr(fd, 0, unsafe.Add(base, off), uintptr(min(RepeatLen, n-off)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_POPULATE)
		check("map the file again", err)
	}
	// Sound: the n bytes are mapped, not of the Go heap, and hold no Go pointers.
	return unsafe.Slice((*byte)(base), n)
}
