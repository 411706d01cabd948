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
// FirstTouch and NUMANode apply to the memory domain, the others to an iface. Only SocketDir must be
// the same for peers.
type Config struct {
	FIFOSize       int            `env:"FIFO_SIZE" default:"256" doc:"Maximum number of messages in flight to one peer; 2 to 4096, rounded up to a power of two."`
	SegSize        config.MemSize `env:"SEG_SIZE" default:"8256" doc:"Maximum length of an active message including headers, in bytes; 256 to 64k."`
	Segs           int            `env:"SEGS" default:"64" doc:"Maximum number of messages of more than 120 bytes in flight to one peer; 1 to 256."`
	MaxPeers       int            `env:"MAX_PEERS" default:"1024" doc:"Maximum number of peers that connect to one interface; 1 to 1024."`
	CMA            config.Ternary `env:"CMA" default:"auto" doc:"Use process_vm_readv and process_vm_writev (UCX: transport cma) for registered memory of peers. auto: if the system forbids them, the peer copies in its progress calls. y: do not connect to a peer where they are forbidden; short gets are then available. n: the peer always copies."`
	ArenaSize      config.MemSize `env:"ARENA_SIZE" default:"auto" doc:"Address space for allocated memory, in bytes. auto: the size of the memory of the machine, or less if a limit (ulimit -v, -f) requires it. Only allocated parts use memory, and address space of peers."`
	HugeTLB        config.Ternary `env:"HUGETLB" default:"n" doc:"Use huge pages for allocated memory (UCX: HUGETLB_MODE). They are reserved for all of ARENA_SIZE, which must be set. y: fail if there are not enough huge pages. try: use transparent huge pages if the system has them, else base pages."`
	FirstTouch     config.Ternary `env:"FIRST_TOUCH" default:"y" doc:"Create the pages of allocated memory at once, on the NUMA node of the caller."`
	NUMANode       string         `env:"NUMA_NODE" default:"auto" doc:"Number of the preferred NUMA node of allocated memory. auto: the node of the thread that first accesses it."`
	ConnectTimeout time.Duration  `env:"CONNECT_TIMEOUT" default:"10s" doc:"Maximum time to connect to a peer, on either side."`
	SocketDir      string         `env:"SOCKET_DIR" doc:"Directory of the socket files by which processes in different network namespaces find each other. Empty: abstract sockets. Peers must use the same directory; the path can differ."`
	AllowUIDs      UIDs           `env:"ALLOW_UIDS" doc:"Users whose processes may connect, in addition to the user of this process. They can then read and write all allocated memory."`

	// DialInPost makes the first post on an EP dial the peer itself, instead of a goroutine. The post then blocks until the
	// peer has accepted, and the next Progress of the iface finds the EP connected: what a program in virtual time does
	// depends on no other goroutine.
	DialInPost bool
}

// UIDs are user ids.
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

// UnmarshalText parses the format of Grammar; an empty text is an empty list.
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

	// On an overloaded machine a peer may need seconds to reply.
	defaultConnectTimeout = 10 * time.Second

	minFIFOSize = 2
	minSegSize  = 256
	minArena    = controlLen + 1<<20
)

// withDefaults replaces zeros and checks ranges.
func (c Config) withDefaults() (Config, error) {
	err := cmp.Or(
		base.SetDefault("FIFO_SIZE", &c.FIFOSize, defaultFIFOSize, minFIFOSize, maxSlots),
		base.SetDefault("SEGS", &c.Segs, defaultSegs, 1, maxSegs),
		base.SetDefault("MAX_PEERS", &c.MaxPeers, defaultMaxPeers, 1, maxPeers),
		base.SetDefault("SEG_SIZE", &c.SegSize, defaultSegSize, minSegSize, maxSegLen),
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

// node returns the configured NUMA node; ok is false if there is none.
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
