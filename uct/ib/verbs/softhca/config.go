package softhca

import (
	"time"

	hca "github.com/gucx/gucx/internal/softhca"
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

// Config makes a device. The zero value is a device on the shm fabric.
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
}

// internal returns c as a configuration in real time.
func (c Config) internal() hca.Config {
	return hca.Config{
		Name: c.Name, Fabric: hca.Fabric(c.Fabric), ArenaLen: c.ArenaLen, InlineBudget: c.InlineBudget,
		EngineTick: c.EngineTick, DialTimeout: c.DialTimeout, AllowUIDs: c.AllowUIDs, NoCMA: c.NoCMA,
		UARPages: c.UARPages, Queues: c.Queues,
	}
}
