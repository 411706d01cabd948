package memfd

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// policyPreferred allocates pages from the node as long as it has free ones: MPOL_PREFERRED of
// the uapi header linux/mempolicy.h.
const policyPreferred = 1

// maxNode is the maximum number of NUMA nodes: 1 << NODES_SHIFT of amd64 kernels.
const maxNode = 1024

// nodeMask is a set of nodes in the format of mbind(2).
type nodeMask [maxNode / 64]uint64

// PreferNode makes the kernel allocate the missing pages of the segment on a NUMA node
// as long as that node has memory, whichever process accesses them first.
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
	// (unsafe.Pointer rule 4). It reads one bit less than maxnode, so maxNode+1 is passed.
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
