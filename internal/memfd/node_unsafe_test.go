package memfd

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Flags of get_mempolicy(2), from the uapi header linux/mempolicy.h.
const (
	flagNode = 1 // the node of a page, not the policy
	flagAddr = 2 // of the mapping at an address
)

// policyAt asks the kernel what it has for an address.
func policyAt(t testing.TB, at *byte, flags uintptr) (mode int32, mask nodeMask) {
	t.Helper()
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)),
		uintptr(unsafe.Pointer(&mask)), maxNode+1, uintptr(unsafe.Pointer(at)), flags, 0)
	require.Zero(t, errno, "%v", errno)
	return mode, mask
}

func TestPreferNode(t *testing.T) {
	s := create(t, 64*os.Getpagesize(), PeersWrite)
	err := s.PreferNode(0)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.EPERM) { // as in a container
		t.Skip(err)
	}
	require.NoError(t, err)
	peer, err := Adopt(dup(t, s.FD()), ReadWrite, 1, len(s.Bytes()))
	require.NoError(t, err)
	for name, mem := range map[string][]byte{"owner": s.Bytes(), "peer": peer.Bytes()} {
		mode, mask := policyAt(t, &mem[0], flagAddr)
		assert.EqualValues(t, policyPreferred, mode, name)
		assert.Equal(t, nodeMask{1}, mask, name)
	}
	peer.Bytes()[0] = 1
	node, _ := policyAt(t, &s.Bytes()[0], flagAddr|flagNode)
	assert.Zero(t, node)
	require.NoError(t, peer.Close())
	for _, bad := range []int{-1, maxNode - 1, maxNode} {
		assert.ErrorIs(t, s.PreferNode(bad), ErrNode, "%d", bad)
	}
}
