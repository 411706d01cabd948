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

// InUse is the number of bytes, as asked for, that are allocated and not freed.
func InUse() int64 { return inUse.Load() }

// Block is one piece of memory. Its methods may be called by any goroutine; the
// memory itself is ordered by those who share it.
type Block struct {
	mem     []byte
	freed   atomic.Bool
	freedBy []byte // stack of the first Free; with invariants only
}

// Alloc returns n bytes, zeroed and page aligned; n is at least 1. A child made
// by fork does not get them (MADV_DONTFORK): a device that writes to the parent's
// page must not find it copied. Errors: unix.EINVAL, or unix.ENOMEM in an
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

// Bytes is the memory: length and capacity as asked for. It is valid until Free;
// a slice kept past that faults or, worse, shows memory of somebody else.
func (b *Block) Bytes() []byte { return b.mem }

// Len is the length as asked for.
func (b *Block) Len() int { return len(b.mem) }

// Free gives the memory back. The caller has made sure that no device, peer or
// goroutine uses it any more. A second Free does nothing, or panics with
// -tags invariants, because its caller no longer owned the block.
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

// roundToPage rounds n up to whole pages, which is what mappings are made of.
func roundToPage(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) &^ (page - 1)
}
