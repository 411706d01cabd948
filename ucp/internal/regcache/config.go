package regcache

import (
	"fmt"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// Config bounds what idle entries hold: those that no operation uses. What is in use is
// bounded by the operations. The zero value is the default.
type Config struct {
	Enable config.Ternary // for the owner of caches: No makes none
	// Overhead is what registering adds to an operation, for the choice between registering and
	// copying. 0 means a lookup in the cache, and a share of what registering costs once.
	Overhead time.Duration
	// MaxSize is in bytes. MemZero keeps nothing.
	MaxSize config.MemSize
	// MaxRegions is a number of entries; 0 means 256.
	MaxRegions int
}

// The defaults. UCX keeps everything, as it sees when memory is freed; here memory is not
// freed while it is registered. So they are what costs a process little: a window of 64
// messages of 1 MiB, and 1/256 of the keys that a domain of sm or self has.
const (
	defaultMaxSize    = 64 << 20
	defaultMaxRegions = 256
)

// Validate checks ranges. ErrInvalidParam.
func (c *Config) Validate() error {
	if c.MaxRegions < 0 {
		return fmt.Errorf("%w: RCACHE_MAX_REGIONS %d, want 0 or more", ucs.ErrInvalidParam, c.MaxRegions)
	}
	if c.Overhead < 0 {
		return fmt.Errorf("%w: RCACHE_OVERHEAD %v, want 0 or more", ucs.ErrInvalidParam, c.Overhead)
	}
	return nil
}

// lookup is what Get of a registered buffer and its Put cost, in picoseconds. BenchmarkHit measures
// 17 ns for one entry and 37 ns for 256.
const lookup = 40_000

// expectedUses is how many operations share the cost of a registration. At the first use of a buffer
// the number is unknown: a buffer that is used once loses at most one registration, and a buffer of a
// loop is registered once for thousands of operations.
const expectedUses = 64

// Adds returns what registering n bytes adds to an operation, in picoseconds, if registering them once
// takes cost.
func (c *Config) Adds(cost uct.Cost, n int) uint64 {
	if c.Overhead > 0 {
		return uint64(c.Overhead) * 1000
	}
	return lookup + cost.Time(uint64(n))/expectedUses
}

// maxSize is MaxSize in bytes.
func (c *Config) maxSize() uint64 { return c.MaxSize.Bytes(defaultMaxSize) }

// maxRegions is MaxRegions with its default.
func (c *Config) maxRegions() int {
	if c.MaxRegions == 0 {
		return defaultMaxRegions
	}
	return c.MaxRegions
}
