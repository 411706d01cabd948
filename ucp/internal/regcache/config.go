package regcache

import (
	"fmt"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// Config limits idle entries, those that no operation uses. Entries in use are limited by the number of operations.
// The zero value is the default.
type Config struct {
	Enable config.Ternary // read by the owner of the cache: with No it makes none
	// Overhead is the estimated cost that registering adds to an operation. ucp compares it with the cost of a copy.
	// 0 means the cost of a lookup, and a share of the cost of one registration.
	Overhead time.Duration
	// MaxSize is the limit in bytes. MemZero caches nothing.
	MaxSize config.MemSize
	// MaxRegions is the limit in entries; 0 means 256.
	MaxRegions int
}

// The default limits. UCX has none, as it sees when memory is freed. Here registered memory cannot be freed, so
// the defaults cost a process little: a window of 64 messages of 1 MiB, and 1/256 of the keys of a domain of sm
// or self.
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

// lookup is the cost of a Get that finds its entry and the Put, in picoseconds. BenchmarkHit measures
// 17 ns for one entry and 37 ns for 256.
const lookup = 40_000

// expectedUses is the number of operations that share the cost of a registration. At the first use of a buffer
// that number is unknown: a buffer that is used once loses at most one registration, and a buffer of a
// loop is registered once for thousands of operations.
const expectedUses = 64

// Adds returns the cost that registering n bytes adds to an operation, in picoseconds, if one registration
// takes cost.
func (c *Config) Adds(cost uct.Cost, n int) uint64 {
	if c.Overhead > 0 {
		return uint64(c.Overhead) * 1000
	}
	return lookup + cost.Time(uint64(n))/expectedUses
}

// maxSize returns MaxSize in bytes.
func (c *Config) maxSize() uint64 { return c.MaxSize.Bytes(defaultMaxSize) }

// maxRegions returns MaxRegions or its default.
func (c *Config) maxRegions() int {
	if c.MaxRegions == 0 {
		return defaultMaxRegions
	}
	return c.MaxRegions
}
