//go:build !race

package offheap

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/invariants"
)

// obtain maps at least n bytes.
func obtain(n int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, roundToPage(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		return nil, errors.Join(os.NewSyscallError("madvise", err), unix.Munmap(mem))
	}
	return mem, nil
}

// unmap unmaps the whole mapping of mem, which Alloc has shortened to the length of the block.
func unmap(mem []byte) error {
	whole := wholeMapping(mem)
	if invariants.Enabled {
		return retired.add(whole)
	}
	return os.NewSyscallError("munmap", unix.Munmap(whole))
}
