package softhca

import (
	"sort"
	"sync"

	"github.com/gucx/gucx/ucs"
	"golang.org/x/sys/unix"
)

// pageLen is the granule of the arena: the page size of amd64, and of arm64 kernels
// with 4 KiB pages; larger pages only make punching holes less exact.
const pageLen = 4096

// arena hands out pages of the arena segment, first fit. The first page is the
// control page and is never handed out.
type arena struct {
	mem []byte
	fd  int

	mu   sync.Mutex
	free []span // by offset, no two adjacent
}

type span struct{ off, len int }

func newArena(mem []byte, fd int) *arena {
	return &arena{mem: mem, fd: fd, free: []span{{pageLen, len(mem) - pageLen}}}
}

// alloc returns the offset of n bytes (a page multiple) of zeroes.
func (a *arena) alloc(n int) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.free {
		s := &a.free[i]
		if s.len < n {
			continue
		}
		off := s.off
		s.off += n
		s.len -= n
		if s.len == 0 {
			a.free = append(a.free[:i], a.free[i+1:]...)
		}
		return off, nil
	}
	return 0, ucs.ErrNoMemory
}

// release gives the pages back to the system, so that they read as zeroes when
// they are handed out again, and to the free list.
func (a *arena) release(off, n int) error {
	err := unix.Fallocate(a.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
	if err != nil {
		clear(a.mem[off : off+n])
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i := sort.Search(len(a.free), func(i int) bool { return a.free[i].off > off })
	a.free = append(a.free, span{})
	copy(a.free[i+1:], a.free[i:])
	a.free[i] = span{off, n}
	a.merge(i)
	if i > 0 {
		a.merge(i - 1)
	}
	return nil
}

// merge joins span i with the one after it when they touch.
func (a *arena) merge(i int) {
	if i+1 < len(a.free) && a.free[i].off+a.free[i].len == a.free[i+1].off {
		a.free[i].len += a.free[i+1].len
		a.free = append(a.free[:i+1], a.free[i+2:]...)
	}
}

// buffer is memory from AllocBuffer.
type buffer struct {
	hca *hca
	mem []byte
	off int
	len int // page multiple
}

// Bytes is the memory.
func (b *buffer) Bytes() []byte { return b.mem }

// Close frees the memory, unless a peer that does not run may still write to it:
// then it is kept until that peer is gone.
func (b *buffer) Close() error {
	if b.mem == nil {
		return nil
	}
	b.mem = nil
	return b.hca.reclaim(func() error { return b.hca.arena.release(b.off, b.len) })
}
