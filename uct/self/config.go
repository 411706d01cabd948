package self

import (
	"cmp"
	"math/bits"
	"sync"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/internal/memop"
)

// Config tunes the transport. The zero value is ready to use.
type Config struct {
	FIFOSize int            `env:"FIFO_SIZE" default:"256" doc:"Maximum number of messages that wait for Progress; 2 to 32768, rounded up to a power of two."`
	SegSize  config.MemSize `env:"SEG_SIZE" default:"8256" doc:"Maximum length of an active message, in bytes; 256 to 1m."`
	// Group lets several ifaces of one goroutine reach each other. With nil, the iface reaches only itself.
	Group *Group
}

// Defaults and limits.
const (
	defaultFIFOSize = 256
	defaultSegSize  = 8<<10 + 64 // 8 KiB and the headers of ucp

	minFIFOSize = 2
	maxFIFOSize = 1 << 15
	minSegSize  = 256
	maxSegSize  = 1 << 20
)

// withDefaults replaces zeros and checks ranges.
func (c Config) withDefaults() (Config, error) {
	err := cmp.Or(
		base.SetDefault("FIFO_SIZE", &c.FIFOSize, defaultFIFOSize, minFIFOSize, maxFIFOSize),
		base.SetDefault("SEG_SIZE", &c.SegSize, defaultSegSize, minSegSize, maxSegSize),
	)
	if err != nil {
		return c, err
	}
	c.FIFOSize = 1 << bits.Len(uint(c.FIFOSize-1))
	return c, nil
}

// Validate checks the ranges, for config.FromEnv.
func (c *Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

// Group is a set of ifaces that one goroutine at a time drives. The zero
// value is ready; any goroutine may open ifaces in it.
type Group struct {
	mu     sync.Mutex
	ifaces map[uint64]*iface // by address
}

// join adds an iface and returns its address, a random number.
func (g *Group) join(it *iface) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ifaces == nil {
		g.ifaces = map[uint64]*iface{}
	}
	id := memop.NewKey(len(g.ifaces) & memop.KeyIndexMask)
	g.ifaces[id] = it
	return id
}

func (g *Group) leave(id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.ifaces, id)
}

func (g *Group) find(id uint64) *iface {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ifaces[id]
}
