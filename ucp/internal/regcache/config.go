package regcache

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
)

// Config bounds what idle entries hold: those that no operation uses. What is in use is
// bounded by the operations. The zero value is the default.
type Config struct {
	// MaxSize is in bytes. MemZero keeps nothing.
	MaxSize config.MemSize `env:"MAX_SIZE" default:"64m" doc:"Bytes of memory that stay registered while no operation uses them; 0 deregisters at once."`
	// MaxRegions is a number of entries; 0 means 256.
	MaxRegions int `env:"MAX_REGIONS" default:"256" doc:"Regions of memory that stay registered while no operation uses them."`
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
		return fmt.Errorf("registration cache of %d regions: %w", c.MaxRegions, ucs.ErrInvalidParam)
	}
	return nil
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
