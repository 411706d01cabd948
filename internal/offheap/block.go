package offheap

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/invariants"
)

var inUse atomic.Int64 // bytes

// InUse returns the sum of the lengths of all blocks that are not freed, in bytes.
func InUse() int64 { return inUse.Load() }

// Block is one piece of memory. Any goroutine may call its methods; goroutines that share the
// memory must synchronize their accesses.
type Block struct {
	mem     []byte
	freed   atomic.Bool
	freedBy []byte // stack of the first Free; with invariants only
}

// Alloc returns a block of n bytes, zeroed and page aligned; n is at least 1. A child made
// by fork does not inherit it (MADV_DONTFORK): otherwise a fork could replace the parent's
// page by a copy while a device writes to the original. Errors: unix.EINVAL, or unix.ENOMEM in an
// *os.SyscallError.
func Alloc(n int) (*Block, error) {
	if n < 1 {
		return nil, fmt.Errorf("allocate %d bytes off the heap: %w", n, unix.EINVAL)
	}
	mem, err := obtain(n)
	if err != nil {
		return nil, err
	}
	inUse.Add(int64(n))
	return &Block{mem: mem[:n:n]}, nil
}

// Bytes returns the memory, with the length of Alloc. It is valid until Free:
// a later access faults or accesses other memory.
func (b *Block) Bytes() []byte { return b.mem }

// Len returns the length in bytes.
func (b *Block) Len() int { return len(b.mem) }

// Free frees the memory. No device, peer or
// goroutine may use it when Free is called. A second Free is a bug of its caller: it panics with
// -tags invariants, and does nothing otherwise.
func (b *Block) Free() error {
	if b.freed.Swap(true) {
		if invariants.Enabled {
			panic(fmt.Sprintf("offheap: block of %d bytes freed twice; first by\n%s", len(b.mem), b.freedBy))
		}
		return nil
	}
	if invariants.Enabled {
		b.freedBy = debug.Stack()
	}
	inUse.Add(-int64(len(b.mem)))
	return unmap(b.mem)
}

// roundToPage rounds n up to whole pages.
func roundToPage(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) &^ (page - 1)
}
