// Package memprot tells whether this process may read or write memory, so that memory
// is refused when it is registered and not by a SIGSEGV when a peer writes to it.
//
// It asks the kernel for the mappings and touches none of the memory: nothing is
// faulted in, and what others write meanwhile stays. The cost depends on the number
// of mappings in the range, not on its length: some 4 us for one, with the ioctl
// PROCMAP_QUERY of Linux 6.11. Older kernels print all mappings of the process up to
// the range, about 1 us each.
//
// The answer is about now: a later mprotect or munmap is the caller's fault, as it is
// with registered memory of hardware.
package memprot

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
)

// mapsFile lists the mappings of this process, and answers PROCMAP_QUERY.
const mapsFile = "/proc/self/maps"

// rights are those of a mapping, by the bits of PROCMAP_QUERY.
type rights uint64

const (
	readable rights = 1 << iota
	writable
)

// String names the rights as an error does.
func (r rights) String() string {
	if r&writable != 0 {
		return "written"
	}
	return "read"
}

// mapping is a range of addresses with the same rights.
type mapping struct {
	start, end uint64
	rights     rights
}

// Check returns nil if all of mem may be read, and written too if write is set, and
// also where there is no /proc to tell. Any goroutine; it makes a few system calls and
// does not block.
//
// The error matches ucs.ErrInvalidParam and unix.EFAULT.
func Check(mem []byte, write bool) error {
	if len(mem) == 0 {
		return nil
	}
	fd, err := unix.Open(mapsFile, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // it cannot be determined
	}
	defer func() { _ = unix.Close(fd) }()
	start := addrOf(mem)
	need := readable
	if write {
		need |= writable
	}
	err = walk(ioctlSource(fd), start, start+uint64(len(mem)), need)
	if err == errNoIoctl {
		err = walk(textSource(os.ReadFile), start, start+uint64(len(mem)), need)
	}
	return err
}

// source finds the first mapping that ends behind an address; start is math.MaxUint64
// in what it returns if there is none.
type source func(at uint64) (mapping, error)

// walk looks at the mappings of [start, end).
func walk(next source, start, end uint64, need rights) error {
	for at := start; at < end; {
		m, err := next(at)
		if err != nil {
			return err
		}
		if m.start > at || m.rights&need != need {
			return fmt.Errorf("%w: %w: memory at %#x may not be %v", ucs.ErrInvalidParam, unix.EFAULT, at, need)
		}
		at = m.end
	}
	return nil
}
