package memfd

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// policyPreferred takes pages from the node as long as it has some: MPOL_PREFERRED of
// the uapi header linux/mempolicy.h.
const policyPreferred = 1

// maxNode is how many NUMA nodes there may be: 1 << NODES_SHIFT of amd64 kernels.
const maxNode = 1024

// nodeMask is a set of nodes as mbind(2) takes it.
type nodeMask [maxNode / 64]uint64

// PreferNode has the pages of the segment that do not exist yet made on a NUMA node,
// whichever process touches them first, as long as that node has memory.
//
// Errors: ErrNode (there is no such node), errors.ErrUnsupported (a kernel without NUMA),
// system call errors.
func (s *Segment) PreferNode(node int) error {
	if node < 0 || node >= maxNode {
		return fmt.Errorf("%w: %d", ErrNode, node)
	}
	var mask nodeMask
	mask[node/64] = 1 << (node % 64)
	// mem is mapped as long as s is open; the kernel reads mask during the call
	// (unsafe.Pointer rule 4). It takes one bit less than it is told.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(s.mem))), uintptr(len(s.mem)),
		policyPreferred, uintptr(unsafe.Pointer(&mask)), maxNode+1, 0)
	switch errno {
	case 0:
		return nil
	case unix.EINVAL:
		return fmt.Errorf("%w: %d", ErrNode, node)
	case unix.ENOSYS:
		return fmt.Errorf("memory on NUMA nodes: %w", errors.ErrUnsupported)
	}
	return os.NewSyscallError("mbind", errno)
}

// ErrNode: the machine has no NUMA node with that number that has memory.
var ErrNode = errors.New("no such NUMA node")
