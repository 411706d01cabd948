//go:build !race

package offheap

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// retiredDepth is the number of freed mappings that remain without access rights: enough to detect a
// late access within a test, and far below the kernel's limit of 65530
// mappings (vm.max_map_count).
const retiredDepth = 64

// retiredRing is a ring of freed mappings.
type retiredRing struct {
	mu    sync.Mutex
	ring  [retiredDepth][]byte
	count int
}

var retired retiredRing

// add frees the pages of mem, removes its access rights, and unmaps the oldest mapping of the ring.
func (g *retiredRing) add(mem []byte) error {
	if err := unix.Madvise(mem, unix.MADV_DONTNEED); err != nil {
		return os.NewSyscallError("madvise", err)
	}
	if err := unix.Mprotect(mem, unix.PROT_NONE); err != nil {
		return os.NewSyscallError("mprotect", err)
	}
	g.mu.Lock()
	oldest := g.ring[g.count%retiredDepth]
	g.ring[g.count%retiredDepth] = mem
	g.count++
	g.mu.Unlock()
	if oldest == nil {
		return nil
	}
	return os.NewSyscallError("munmap", unix.Munmap(oldest))
}
