package softhca

import (
	"fmt"
	"time"

	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/timing"
)

// Fabric is what connects a software HCA to others.
type Fabric string

// Fabrics.
const (
	// FabricLoop connects the QPs of one open device with each other.
	FabricLoop Fabric = "loop"
	// FabricShm connects processes of one user on one host.
	FabricShm Fabric = "shm"
)

// Config makes a device. The zero value is a device on the shm fabric.
type Config struct {
	// Name of the device; "" means "softhca0" on shm and "softhca-loop" on loop.
	Name string
	// Fabric; "" means FabricShm.
	Fabric Fabric
	// ArenaLen is how many bytes AllocBuffer can hand out in all. It is address
	// space, in this process and in each peer; pages are taken when touched.
	// Rounded up to a page; 0 means 16 GiB.
	ArenaLen int64
	// InlineBudget is how many bytes a doorbell moves in the caller's thread
	// before the rest is left to pollers and to the engine. 0 means 256 KiB.
	InlineBudget int
	// EngineTick is how often the engine looks whether anybody still polls. 0
	// means 1 ms.
	EngineTick time.Duration
	// DialTimeout bounds how long a peer may take to answer. 0 means 5 s.
	DialTimeout time.Duration
	// AllowUIDs lists users, beside the own one, whose processes may connect.
	AllowUIDs []uint32
	// NoCMA makes the device behave as if the kernel refused cross-memory
	// attach: memory outside the arena is reached through the peer.
	NoCMA bool
	// UARPages is how many UAR pages the contexts of the device in this process can
	// have together. 0 means 8168: those of a ConnectX-4 without the kernel's.
	UARPages int
	// Queues tunes the driver of the queues: the policy for UAR pages, BlueFlame.
	Queues mlx5.Config
	// Timing puts the device under a model of time, of a machine on which any number
	// of devices can be open: completions come when the model says, and nothing runs
	// in the background. Only on the loop fabric, which is then the default, and
	// for one goroutine. See package timing.
	Timing *timing.Model
	// NIC of Timing is the one that the device is; nil means its first.
	NIC *timing.NIC
}

const (
	defaultArenaLen     = 16 << 30
	defaultInlineBudget = 256 << 10 // a copy of about 10 us
	defaultEngineTick   = time.Millisecond
	defaultDialTimeout  = 5 * time.Second // a live process on an overloaded machine took more than 1 s
)

func (c Config) withDefaults() (Config, error) {
	if c.Fabric == "" && c.Timing != nil {
		c.Fabric = FabricLoop
	}
	if c.Fabric == "" {
		c.Fabric = FabricShm
	}
	if c.Fabric != FabricLoop && c.Fabric != FabricShm {
		return c, fmt.Errorf("softhca: unknown fabric %q: want %q or %q", c.Fabric, FabricLoop, FabricShm)
	}
	if c.Timing != nil && c.Fabric != FabricLoop {
		return c, fmt.Errorf("softhca: a model of time on fabric %q: want %q", c.Fabric, FabricLoop)
	}
	if c.Name == "" {
		c.Name = "softhca0"
		if c.Fabric == FabricLoop {
			c.Name = "softhca-loop"
		}
	}
	if c.ArenaLen < 0 || c.InlineBudget < 0 || c.EngineTick < 0 || c.DialTimeout < 0 || c.UARPages < 0 || c.UARPages > deviceUARs {
		return c, fmt.Errorf("softhca %s: size, duration or number out of range in configuration", c.Name)
	}
	if c.ArenaLen == 0 {
		c.ArenaLen = defaultArenaLen
	}
	c.ArenaLen = (c.ArenaLen + pageLen - 1) &^ (pageLen - 1)
	if c.InlineBudget == 0 {
		c.InlineBudget = defaultInlineBudget
	}
	if c.EngineTick == 0 {
		c.EngineTick = defaultEngineTick
	}
	if c.UARPages == 0 {
		c.UARPages = deviceUARs - reservedUARs
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = defaultDialTimeout
	}
	return c, nil
}
