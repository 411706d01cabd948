package memfd

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrFull: an arena has no gap of the requested length.
var ErrFull = errors.New("arena is full")

// Arena allocates whole pages of a sparse segment, first fit. Free returns the pages to the
// system, so that they are zero at the next allocation. Huge pages are not returned; the arena allocates them
// in pieces of base pages. Any goroutine may call its methods.
type Arena struct {
	seg *Segment

	mu   sync.Mutex
	free []span // by offset, no two adjacent
}

type span struct{ off, len int }

// NewArena makes an arena of seg without its first skip bytes, a multiple of the
// page size. The caller owns seg and must not close it or its descriptor while it uses the arena.
func NewArena(seg *Segment, skip int) *Arena {
	return &Arena{seg: seg, free: []span{{skip, len(seg.Bytes()) - skip}}}
}

// Alloc returns the offset of n zeroed bytes, rounded up to whole pages; n is at
// least 1. With touch the calling thread creates the pages, on its
// NUMA node, and a lack of memory is an error of Alloc and not a
// signal at a later access. Without touch the first access of any process creates a page. Errors:
// ErrFull, errors of the system.
func (a *Arena) Alloc(n int, touch bool) (int, error) {
	n = pages(n)
	off, ok := a.alloc(n)
	if !ok {
		return 0, fmt.Errorf("%w: %d bytes", ErrFull, n)
	}
	if touch {
		if err := Populate(a.seg.Bytes()[off : off+n]); err != nil {
			a.Free(off, n)
			return 0, err
		}
	}
	return off, nil
}

func (a *Arena) alloc(n int) (off int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.free {
		s := &a.free[i]
		if s.len < n {
			continue
		}
		off = s.off
		s.off += n
		s.len -= n
		if s.len == 0 {
			a.free = append(a.free[:i], a.free[i+1:]...)
		}
		return off, true
	}
	return 0, false
}

// Free frees the n bytes at off, which Alloc(n) has returned. No process may access them afterwards.
func (a *Arena) Free(off, n int) {
	n = pages(n)
	// Another process could reserve a huge page that was returned, and the next Alloc might get none.
	const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if a.seg.huge || unix.Fallocate(a.seg.FD(), punch, int64(off), int64(n)) != nil {
		clear(a.seg.Bytes()[off : off+n])
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i := sort.Search(len(a.free), func(i int) bool { return a.free[i].off > off })
	a.free = append(a.free, span{})
	copy(a.free[i+1:], a.free[i:])
	a.free[i] = span{off, n}
	a.join(i)
	if i > 0 {
		a.join(i - 1)
	}
}

// join merges span i and the next one if they are adjacent.
func (a *Arena) join(i int) {
	if i+1 < len(a.free) && a.free[i].off+a.free[i].len == a.free[i+1].off {
		a.free[i].len += a.free[i+1].len
		a.free = append(a.free[:i+1], a.free[i+2:]...)
	}
}

// pages rounds n up to whole pages.
func pages(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) / page * page
}

// Populate creates the pages of mem, which starts at a page, as a write to each of them by the calling
// thread would. Before Linux 5.14 it does nothing.
func Populate(mem []byte) error {
	err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
	if err == nil || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return fmt.Errorf("populate %d bytes: %w", len(mem), os.NewSyscallError("madvise", err))
}

// shmemHuge is the setting of the kernel that permits huge pages for memory files.
const shmemHuge = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

// AdviseHuge requests transparent huge pages for the segment. The
// error matches errors.ErrUnsupported if the system's setting forbids them.
func (s *Segment) AdviseHuge() error {
	mode, err := os.ReadFile(shmemHuge)
	if err != nil || !hugeEnabled(string(mode)) {
		return fmt.Errorf("%w: huge pages for memory files are off in %s", errors.ErrUnsupported, shmemHuge)
	}
	return os.NewSyscallError("madvise", unix.Madvise(s.mem, unix.MADV_HUGEPAGE))
}

// hugeEnabled reports whether the selected mode, which is in brackets, permits huge pages.
func hugeEnabled(modes string) bool {
	_, rest, _ := strings.Cut(modes, "[")
	chosen, _, ok := strings.Cut(rest, "]")
	return ok && chosen != "never" && chosen != "deny"
}
