// Package memprot checks whether this process may read or write memory. A registration of other memory can
// then fail with an error, instead of a SIGSEGV when a peer writes to it.
//
// It reads the list of mappings from the kernel and does not access the memory, so it creates no pages and
// does not disturb concurrent writes. The cost depends on the number
// of mappings in the range, not on its length: some 4 us for one, with the ioctl
// PROCMAP_QUERY of Linux 6.11. Older kernels print all mappings of the process up to
// the range, about 1 us each.
//
// The result is valid at the time of the check. The caller must not mprotect or munmap the memory later, as for
// registered memory of hardware.
package memprot

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
)

// mapsFile lists the mappings of this process, and has the ioctl PROCMAP_QUERY.
const mapsFile = "/proc/self/maps"

// rights are those of a mapping, by the bits of PROCMAP_QUERY.
type rights uint64

const (
	readable rights = 1 << iota
	writable
)

// String returns the text for an error: "read" or "written".
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

// Check returns nil if all of mem may be read and, if write is set, also written, or if
// there is no /proc to read. Any goroutine may call it. It makes a few system calls and
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

// source returns the first mapping that ends behind an address; if there is none, a mapping with start
// math.MaxUint64.
type source func(at uint64) (mapping, error)

// walk checks that the mappings of [start, end) have the rights, without a gap.
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
