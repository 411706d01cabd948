package sm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

const arenaName = "gucx-sm-arena"

// createArena creates the arena of a domain with the configured pages and NUMA node, and returns a description of
// the result.
func createArena(cfg *Config) (seg *memfd.Segment, pages string, err error) {
	if seg, pages, err = createPages(cfg); err != nil {
		return nil, "", err
	}
	n, ok, err := cfg.node()
	if ok && err == nil {
		err = seg.PreferNode(n)
		pages += fmt.Sprintf(" of NUMA node %d", n)
	}
	if errors.Is(err, memfd.ErrNode) {
		err = fmt.Errorf("%w: NUMA_NODE: %w", uct.ErrInvalidParam, err)
	}
	if err != nil {
		return nil, "", errors.Join(err, seg.Close())
	}
	return seg, pages, nil
}

// createPages creates an arena of huge pages from the pool, of transparent huge pages, or of
// base pages.
func createPages(cfg *Config) (*memfd.Segment, string, error) {
	size, try := arenaLen(cfg.ArenaSize), cfg.HugeTLB == config.Try
	why := ""
	if cfg.ArenaSize != config.MemAuto && (try || cfg.HugeTLB == config.Yes) {
		seg, err := memfd.CreateHuge(arenaName, size, memfd.PeersWrite)
		if err == nil || !try {
			return seg, "huge pages", err
		}
		why = fmt.Sprintf(" (%v)", err)
	}
	seg, err := memfd.Create(arenaName, size, memfd.PeersWrite)
	if err != nil || !try {
		return seg, "base pages", err
	}
	if err := seg.AdviseHuge(); err != nil {
		return seg, fmt.Sprintf("base pages%s (%v)", why, err), nil
	}
	return seg, "transparent huge pages" + why, nil
}

// arenaLen returns the length of the address space of the arena: the size of the memory of the machine,
// because more would only cause swapping, or less if the limits of the user require it.
func arenaLen(size config.MemSize) int {
	if size != config.MemAuto {
		return int(size)
	}
	memory := uint64(fallbackArena)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		memory = uint64(info.Totalram) * uint64(info.Unit)
	}
	return autoArena(memory, limitOf(unix.RLIMIT_AS), limitOf(unix.RLIMIT_FSIZE))
}

// autoArena returns the length for a machine with the given memory and the given limits of address
// space and files.
func autoArena(memory, addresses, file uint64) int {
	return int(min(max(min(memory, addresses/arenaShare, file), minArena), maxArena))
}

const (
	fallbackArena = 16 << 30
	maxArena      = 1 << 40 // limit of package attach
	// arenaShare divides a limited address space: an arena uses at most this part, because other domains,
	// the arenas of peers and the Go runtime need address space too.
	arenaShare = 8
)

// limitOf returns a limit of this process; the largest number if there is none.
func limitOf(resource int) uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(resource, &limit) != nil {
		return unix.RLIM_INFINITY
	}
	return limit.Cur
}

// populates reports whether Alloc creates the pages at once.
func (md *domain) populates() bool { return md.cfg.FirstTouch != config.No }
