package softhca

import (
	"fmt"
	"time"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// Fabric is the network between software HCAs.
type Fabric string

// Fabrics.
const (
	// FabricLoop connects the QPs of one open device with each other.
	FabricLoop Fabric = "loop"
	// FabricShm connects processes of one user on one host.
	FabricShm Fabric = "shm"
)

// Config makes a device. The zero value is a device on the shm fabric. Programs use the Config of package
// uct/ib/verbs/softhca, which has the same fields but Timing and NIC.
type Config struct {
	// Name of the device; "" means "softhca0" on shm and "softhca-loop" on loop.
	Name string
	// Fabric; "" means FabricShm.
	Fabric Fabric
	// ArenaLen is the limit of memory from AllocBuffer in bytes. It is address
	// space, in this process and in each peer; the kernel allocates pages on first access.
	// Rounded up to a page; 0 means 16 GiB.
	ArenaLen int64
	// InlineBudget is the number of bytes that a doorbell moves in the thread of the
	// caller; pollers and the engine move the rest. 0 means 256 KiB.
	InlineBudget int
	// EngineTick is the interval at which the engine checks whether a caller still polls.
	// 0 means 1 ms.
	EngineTick time.Duration
	// DialTimeout is the time limit for a peer to reply. 0 means 5 s.
	DialTimeout time.Duration
	// AllowUIDs lists the users, in addition to the own one, whose processes may connect.
	AllowUIDs []uint32
	// NoCMA makes the device behave as if the kernel refused cross-memory
	// attach: memory outside the arena is reached through the peer.
	NoCMA bool
	// UARPages is the total number of UAR pages of all contexts of the device in this
	// process. 0 means 8168: those of a ConnectX-4 without the kernel's.
	UARPages int
	// Queues configures the driver of the queues: the policy for UAR pages, BlueFlame.
	Queues mlx5.Config
	// Timing runs the device in virtual time, under the model of a machine on which any
	// number of devices can be open: the model decides when completions appear, and nothing
	// runs in the background. It requires the loop fabric, which is then the default, and a
	// single goroutine. See package timing.
	Timing *timing.Model
	// NIC is the NIC of Timing that the device represents; nil means the first.
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
