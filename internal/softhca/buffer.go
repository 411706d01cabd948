package softhca

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// An arena segment starts with the control page and the claims of XRC SRQs; memory for
// callers follows. pageLen is the page size of amd64. On machines with larger pages, up to 64 KiB,
// the rest of the first page is not used.
const (
	pageLen    = 4096
	claimsOff  = 64 << 10
	arenaStart = claimsOff + table.ClaimsLen
)

func newArena(seg *memfd.Segment) *memfd.Arena { return memfd.NewArena(seg, arenaStart) }

// AllocBuffer implements prm.Hardware. ErrNoMemory if the arena is full.
func (h *hca) AllocBuffer(n int) (verbs.Buffer, error) {
	if n <= 0 {
		return nil, ucs.ErrInvalidParam
	}
	h.owner.Reclaim()
	if h.arena == nil {
		block, err := offheap.Alloc(n)
		if err != nil {
			return nil, err
		}
		return &heapBuffer{hca: h, block: block}, nil
	}
	off, err := h.arena.Alloc(n, false)
	if errors.Is(err, memfd.ErrFull) {
		err = fmt.Errorf("%w: %w", ucs.ErrNoMemory, err)
	}
	if err != nil {
		return nil, err
	}
	return &buffer{hca: h, mem: h.arenaSeg.Bytes()[off : off+n : off+n], off: off, len: n}, nil
}

// buffer is memory from AllocBuffer in the arena.
type buffer struct {
	hca *hca
	mem []byte
	off int
	len int // as requested
}

// Bytes returns the memory.
func (b *buffer) Bytes() []byte { return b.mem }

// Close frees the memory. Its regions are deregistered, so no peer accesses it.
func (b *buffer) Close() error {
	if b.mem != nil {
		b.free()
	}
	return nil
}

func (b *buffer) free() {
	b.mem = nil
	b.hca.arena.Free(b.off, b.len)
}

// heapBuffer is memory from AllocBuffer on the loop fabric.
type heapBuffer struct {
	hca   *hca
	block *offheap.Block
}

// Bytes returns the memory.
func (b *heapBuffer) Bytes() []byte { return b.block.Bytes() }

// Close frees the memory.
func (b *heapBuffer) Close() error { return b.block.Free() }

func (b *heapBuffer) free() { _ = b.block.Free() }

// freer is a buffer of AllocBuffer, which the device can also free later.
type freer interface {
	verbs.Buffer
	free()
}
