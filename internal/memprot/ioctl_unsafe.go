package memprot

import (
	"errors"
	"math"
	"structs"
	"unsafe"

	"golang.org/x/sys/unix"
)

// query is struct procmap_query of the uapi header linux/fs.h.
type query struct {
	_                     structs.HostLayout
	size                  uint64
	flags                 uint64
	addr                  uint64
	start, end            uint64 // these and all following fields are results
	rights                uint64
	pageLen               uint64
	offset                uint64
	inode                 uint64
	devMajor, devMinor    uint32
	nameLen, buildIDLen   uint32
	nameAddr, buildIDAddr uint64
}

const queryLen = 104

var _ = [1]struct{}{}[unsafe.Sizeof(query{})-queryLen]

const (
	// procmapQuery is PROCMAP_QUERY: _IOWR('f', 17, struct procmap_query).
	procmapQuery = 3<<30 | queryLen<<16 | 'f'<<8 | 17
	// coveringOrNext is PROCMAP_QUERY_COVERING_OR_NEXT_VMA.
	coveringOrNext = 0x10
)

// errNoIoctl: the kernel has no PROCMAP_QUERY, or a sandbox hides it.
var errNoIoctl = errors.New("no PROCMAP_QUERY")

// ioctlSource queries one mapping at a time.
func ioctlSource(fd int) source {
	return func(at uint64) (mapping, error) {
		q := query{size: queryLen, flags: coveringOrNext, addr: at}
		// The pointer is converted in the call, which keeps q alive (unsafe.Pointer
		// rule 4); the kernel writes at most q.size bytes.
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), procmapQuery, uintptr(unsafe.Pointer(&q)))
		switch errno {
		case 0:
			return mapping{q.start, q.end, rights(q.rights)}, nil
		case unix.ENOENT:
			return mapping{start: math.MaxUint64}, nil
		}
		return mapping{}, errNoIoctl
	}
}

// addrOf returns the address of the first byte. The number is compared, and never converted
// to a pointer.
func addrOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
