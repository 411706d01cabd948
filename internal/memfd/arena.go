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

// ErrFull: an arena has no gap of the length that was asked for.
var ErrFull = errors.New("arena is full")

// Arena hands out whole pages of a sparse segment, first fit, and gives pages that
// come back to the system, so that they read as zeroes when they go out again. Huge
// pages it keeps, and hands out in pieces of base pages.
// Methods may be called from any goroutine.
type Arena struct {
	seg *Segment

	mu   sync.Mutex
	free []span // by offset, no two adjacent
}

type span struct{ off, len int }

// NewArena makes an arena of seg without its first skip bytes, a multiple of the
// page size. seg keeps its descriptor and stays the caller's.
func NewArena(seg *Segment, skip int) *Arena {
	return &Arena{seg: seg, free: []span{{skip, len(seg.Bytes()) - skip}}}
}

// Alloc returns the offset of n zeroed bytes, rounded up to whole pages; n is at
// least 1. With touch the pages are made now, by the calling thread and so on its
// NUMA node, and a machine without memory for them is an error here rather than a
// signal later; without, at the first access of all. Errors:
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

// Free takes back what Alloc(n) returned. Nobody may use it any more.
func (a *Arena) Free(off, n int) {
	n = pages(n)
	// A huge page that was given back would be anybody's, and maybe missing next time.
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

// join makes one of span i and the next if they touch.
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

// Populate makes the pages of mem, which starts at a page, as if each had been
// written to, by the calling thread. Before Linux 5.14 it does nothing.
func Populate(mem []byte) error {
	err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
	if err == nil || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return fmt.Errorf("populate %d bytes: %w", len(mem), os.NewSyscallError("madvise", err))
}

// shmemHuge is where the kernel says whether memory files can have huge pages.
const shmemHuge = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

// AdviseHuge asks the kernel to back the segment with transparent huge pages. The
// error matches errors.ErrUnsupported where the system's setting forbids it.
func (s *Segment) AdviseHuge() error {
	mode, err := os.ReadFile(shmemHuge)
	if err != nil || !hugeEnabled(string(mode)) {
		return fmt.Errorf("%w: huge pages for memory files are off in %s", errors.ErrUnsupported, shmemHuge)
	}
	return os.NewSyscallError("madvise", unix.Madvise(s.mem, unix.MADV_HUGEPAGE))
}

// hugeEnabled reads the choice, which is the word in brackets.
func hugeEnabled(modes string) bool {
	_, rest, _ := strings.Cut(modes, "[")
	chosen, _, ok := strings.Cut(rest, "]")
	return ok && chosen != "never" && chosen != "deny"
}
