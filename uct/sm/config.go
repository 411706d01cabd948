package sm

import (
	"cmp"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// Config tunes the transport. The zero value is ready to use. ArenaSize, HugeTLB,
// FirstTouch and NUMANode belong to the memory domain, the rest to an iface. Peers need
// not agree, but on SocketDir.
type Config struct {
	FIFOSize       int            `env:"FIFO_SIZE" default:"256" doc:"Messages on their way to one peer; rounded up to a power of two."`
	SegSize        config.MemSize `env:"SEG_SIZE" default:"8256" doc:"Longest active message: by default 8 KiB of data and its headers."`
	Segs           int            `env:"SEGS" default:"64" doc:"Messages of more than 120 bytes on their way to one peer."`
	MaxPeers       int            `env:"MAX_PEERS" default:"1024" doc:"Peers that may connect to one iface."`
	CMA            config.Ternary `env:"CMA" default:"auto" doc:"Reach registered memory of peers by process_vm_readv and process_vm_writev; where that is off or forbidden the peer helps, in its progress; y: a peer where it is forbidden is not connected to, and short gets exist."`
	ArenaSize      config.MemSize `env:"ARENA_SIZE" default:"auto" doc:"Address space for allocated memory; auto is the memory of the machine, or less where limits (ulimit -v, -f) leave less room. Only what is allocated takes memory, and address space of peers."`
	HugeTLB        config.Ternary `env:"HUGETLB" default:"n" doc:"Huge pages for allocated memory. They are of the machine's pool and reserved for all of ARENA_SIZE, which must then be given; y: an error where there are not enough; try: transparent ones instead if the system has them, else base pages."`
	FirstTouch     config.Ternary `env:"FIRST_TOUCH" default:"y" doc:"Make the pages of allocated memory when it is allocated, on the NUMA node of the caller."`
	NUMANode       string         `env:"NUMA_NODE" default:"auto" doc:"NUMA node that allocated memory comes from as long as it has some; auto: that of the thread that touches it first."`
	ConnectTimeout time.Duration  `env:"CONNECT_TIMEOUT" default:"10s" doc:"How long connecting to a peer may take, on either side."`
	SocketDir      string         `env:"SOCKET_DIR" doc:"Directory for socket files, by which processes find each other that share it but no network namespace; empty: abstract sockets. Peers need the same directory, maybe mounted elsewhere."`
	AllowUIDs      UIDs           `env:"ALLOW_UIDS" doc:"Users, beside this process's, whose processes may connect and be connected to. They can then read and write all allocated memory."`
}

// UIDs are numbers of users.
type UIDs []uint32

// Grammar implements config.Value.
func (UIDs) Grammar() string { return "numbers of users, separated by commas" }

// MarshalText lists the numbers.
func (u UIDs) MarshalText() (text []byte, err error) {
	for i, uid := range u {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendUint(text, uint64(uid), 10)
	}
	return text, nil
}

// UnmarshalText reads what Grammar says; without a number it is the empty list.
func (u *UIDs) UnmarshalText(text []byte) error {
	var list UIDs
	if len(text) == 0 {
		*u = nil
		return nil
	}
	for field := range strings.SplitSeq(string(text), ",") {
		uid, err := strconv.ParseUint(strings.TrimSpace(field), 10, 32)
		if err != nil {
			return fmt.Errorf("%w: user %q", uct.ErrInvalidParam, field)
		}
		list = append(list, uint32(uid))
	}
	*u = list
	return nil
}

// Defaults and limits.
const (
	defaultFIFOSize = 256
	defaultSegSize  = 8<<10 + 64
	defaultSegs     = 64
	defaultMaxPeers = 1024

	// A peer whose machine runs many times more than it has processors for may take
	// seconds to answer.
	defaultConnectTimeout = 10 * time.Second

	minFIFOSize = 2
	minSegSize  = 256
	minArena    = controlLen + 1<<20
)

// withDefaults replaces zeros and checks ranges.
func (c Config) withDefaults() (Config, error) {
	err := cmp.Or(
		base.Settle("FIFO_SIZE", &c.FIFOSize, defaultFIFOSize, minFIFOSize, maxSlots),
		base.Settle("SEGS", &c.Segs, defaultSegs, 1, maxSegs),
		base.Settle("MAX_PEERS", &c.MaxPeers, defaultMaxPeers, 1, maxPeers),
		base.Settle("SEG_SIZE", &c.SegSize, defaultSegSize, minSegSize, maxSegLen),
	)
	if err != nil {
		return c, err
	}
	if c.ArenaSize != config.MemAuto && (c.ArenaSize < minArena || c.ArenaSize > maxArena) {
		return c, fmt.Errorf("%w: ARENA_SIZE %d not in [%d, %d]", uct.ErrInvalidParam, c.ArenaSize, minArena, maxArena)
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = defaultConnectTimeout
	}
	if c.ConnectTimeout < 0 {
		return c, fmt.Errorf("%w: CONNECT_TIMEOUT %v", uct.ErrInvalidParam, c.ConnectTimeout)
	}
	if c.HugeTLB == config.Yes && c.ArenaSize == config.MemAuto {
		return c, fmt.Errorf("%w: HUGETLB=y without ARENA_SIZE", uct.ErrInvalidParam)
	}
	if _, _, err := c.node(); err != nil {
		return c, err
	}
	c.FIFOSize = 1 << bits.Len(uint(c.FIFOSize-1))
	return c, nil
}

// node is the NUMA node that was asked for, if one was.
func (c *Config) node() (n int, ok bool, err error) {
	if c.NUMANode == "" || c.NUMANode == "auto" {
		return 0, false, nil
	}
	n, err = strconv.Atoi(c.NUMANode)
	if err != nil || n < 0 {
		return 0, false, fmt.Errorf("%w: NUMA_NODE %q is not auto or a number", uct.ErrInvalidParam, c.NUMANode)
	}
	return n, true, nil
}

// Validate checks the ranges, for config.FromEnv.
func (c *Config) Validate() error {
	_, err := c.withDefaults()
	return err
}
