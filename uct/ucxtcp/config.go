package ucxtcp

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// Config tunes the transport. The zero value is ready to use.
type Config struct {
	Devices      []string       `env:"DEVICES" doc:"Network devices that are offered, by name, or all. Empty means loopback."`
	Family       string         `env:"FAMILY" doc:"Address family of a device that has both: inet or inet6. Empty means inet. The loopback device uses inet unless it is named here."`
	Port         int            `env:"PORT" default:"0" doc:"Port on which an interface listens; 0 lets the kernel choose."`
	LoopbackAddr string         `env:"LOOPBACK_ADDR" doc:"Form of the address of a loopback device: wide, of UCX up to release 1.18, or narrow, of later ones. Releases reach each other over loopback only if the form is the same. Empty means wide."`
	TxSegSize    config.MemSize `env:"TX_SEG_SIZE" default:"8k" doc:"Longest active message that is sent by copying."`
	MaxFrame     config.MemSize `env:"MAX_FRAME" default:"64k" doc:"Longest active message that is sent or received: RX_SEG_SIZE of the UCX peers."`
	TxBuf        config.MemSize `env:"TX_BUF" default:"256k" doc:"Transmit buffer of a connection; at least two frames are taken."`
	RxBuf        config.MemSize `env:"RX_BUF" default:"128k" doc:"Receive buffer of a connection, and the most that it holds of what a peer has sent and nobody has taken; at least a frame is taken."`
	TxOps        int            `env:"TX_OPS" default:"1024" doc:"Zero-copy sends and flushes in flight, on all connections together."`
	Join         config.MemSize `env:"JOIN" default:"64k" doc:"So many bytes of small messages are joined before they are written."`
	SendvThresh  config.MemSize `env:"SENDV_THRESH" default:"2k" doc:"Zero-copy sends of up to this length are copied."`
	SndBuf       config.MemSize `env:"SNDBUF" default:"auto" doc:"Send buffer of a socket (SO_SNDBUF); auto leaves it to the kernel."`
	RcvBuf       config.MemSize `env:"RCVBUF" default:"auto" doc:"Receive buffer of a socket (SO_RCVBUF); auto leaves it to the kernel."`

	ConnTimeout  time.Duration `env:"CONN_TIMEOUT" default:"10s" doc:"Time in which a connection must be established."`
	HelloTimeout time.Duration `env:"HELLO_TIMEOUT" default:"10s" doc:"Time in which an accepted connection must send its connection request. A peer that no endpoint here names must also send the rest of each frame within this time."`
	MaxUnnamed   int           `env:"MAX_UNNAMED" default:"1024" doc:"Accepted connections of peers that no endpoint here names; at most half of the file descriptors of the process. One more evicts one of the source that has most: the oldest without a connection request, else the oldest."`
	MaxPerSource int           `env:"MAX_PER_SOURCE" default:"512" doc:"Of these, connections from one IP address, or one /64 network of IPv6. One more evicts another of the same source."`
	MaxConns     int           `env:"MAX_CONNS" default:"4096" doc:"Connections of an interface. One more evicts a connection of a peer that no endpoint here names; without such a connection the new one is refused."`
	AnySource    bool          `env:"ANY_SOURCE" doc:"Accept connection requests of peers that listen on another IP address than they connect from, as hosts with several addresses may. They are refused otherwise, because the request is only the peer's claim."`
	KeepIdle     time.Duration `env:"KEEPIDLE" default:"10s" doc:"Silence after which a peer is probed (TCP_KEEPIDLE)."`
	KeepInterval time.Duration `env:"KEEPINTVL" default:"2s" doc:"Time between probes (TCP_KEEPINTVL)."`
	UserTimeout  time.Duration `env:"USER_TIMEOUT" default:"20s" doc:"Time after which a host that acknowledges nothing of what it is sent, data or probes, is taken for gone; one second is the least."`
	Linger       time.Duration `env:"LINGER" default:"5s" doc:"Longest time that closing an interface waits for its last bytes to be taken by the peer's host."`

	// sys replaces the system calls on connected sockets, for tests of faults.
	sys sockio.IO
}

// Values of Config.Family and Config.LoopbackAddr.
const (
	familyName4 = "inet"
	familyName6 = "inet6"
	addrWide    = "wide"
	addrNarrow  = "narrow"
)

// Defaults and limits.
const (
	defaultTxSeg        = 8 << 10
	defaultTxBuf        = 256 << 10
	defaultRxBuf        = 128 << 10
	defaultTxOps        = 1024
	defaultJoin         = 64 << 10
	defaultSendv        = 2 << 10
	defaultConnTimeout  = 10 * time.Second
	defaultHelloTimeout = 10 * time.Second
	defaultUnnamed      = 1024
	defaultPerSource    = 512
	defaultMaxConns     = 4096
	defaultKeepIdle     = 10 * time.Second
	defaultKeepInterval = 2 * time.Second
	defaultUserTimeout  = 20 * time.Second
	defaultLinger       = 5 * time.Second

	minFrame = 512
	maxFrame = 16 << 20
	maxBuf   = 256 << 20
)

// allDevices in Config.Devices selects every usable device.
const allDevices = "all"

// loopbackDevice is the device that is offered without being named.
const loopbackDevice = "lo"

func (c *Config) deviceListed(name string) bool {
	if len(c.Devices) == 0 {
		return name == loopbackDevice
	}
	return slices.Contains(c.Devices, name) || slices.Contains(c.Devices, allDevices)
}

// withDefaults replaces zeros and checks ranges.
func (c Config) withDefaults() (Config, error) {
	return c, cmp.Or(c.choices(), c.sizes(), c.counts(), c.times())
}

func (c *Config) choices() error {
	c.Family = cmp.Or(c.Family, familyName4)
	c.LoopbackAddr = cmp.Or(c.LoopbackAddr, addrWide)
	switch {
	case c.Family != familyName4 && c.Family != familyName6:
		return fmt.Errorf("%w: FAMILY %q is neither inet nor inet6", uct.ErrInvalidParam, c.Family)
	case c.LoopbackAddr != addrWide && c.LoopbackAddr != addrNarrow:
		return fmt.Errorf("%w: LOOPBACK_ADDR %q is neither wide nor narrow", uct.ErrInvalidParam, c.LoopbackAddr)
	case c.Port < 0 || c.Port > 65535:
		return fmt.Errorf("%w: PORT %d", uct.ErrInvalidParam, c.Port)
	}
	return nil
}

func (c *Config) sizes() error {
	err := cmp.Or(
		base.Settle("MAX_FRAME", &c.MaxFrame, longestFrame, minFrame, maxFrame),
		base.Settle("TX_SEG_SIZE", &c.TxSegSize, min(defaultTxSeg, c.MaxFrame), 64, c.MaxFrame),
		base.Settle("TX_BUF", &c.TxBuf, defaultTxBuf, 1, maxBuf),
		base.Settle("RX_BUF", &c.RxBuf, defaultRxBuf, 1, maxBuf),
		base.Settle("JOIN", &c.Join, defaultJoin, 1, maxBuf),
		base.Settle("SENDV_THRESH", &c.SendvThresh, defaultSendv, 1, maxFrame),
	)
	if err != nil {
		return err
	}
	c.SendvThresh = min(c.SendvThresh, c.TxSegSize)
	c.TxBuf = max(c.TxBuf, 2*(c.TxSegSize+frameLen+maxHeader))
	c.RxBuf = max(c.RxBuf, c.MaxFrame+frameLen)
	return nil
}

func (c *Config) counts() error {
	return cmp.Or(
		base.Settle("TX_OPS", &c.TxOps, defaultTxOps, 1, 1<<20),
		base.Settle("MAX_UNNAMED", &c.MaxUnnamed, defaultUnnamed, 1, 1<<16),
		base.Settle("MAX_PER_SOURCE", &c.MaxPerSource, min(defaultPerSource, c.MaxUnnamed), 1, 1<<16),
		base.Settle("MAX_CONNS", &c.MaxConns, defaultMaxConns, 1, 1<<20),
	)
}

func (c *Config) times() error {
	const longest = time.Hour // fits the kernel's fields in seconds
	return cmp.Or(
		base.Settle("CONN_TIMEOUT", &c.ConnTimeout, defaultConnTimeout, time.Millisecond, longest),
		base.Settle("HELLO_TIMEOUT", &c.HelloTimeout, defaultHelloTimeout, time.Millisecond, longest),
		base.Settle("KEEPIDLE", &c.KeepIdle, defaultKeepIdle, time.Millisecond, longest),
		base.Settle("KEEPINTVL", &c.KeepInterval, defaultKeepInterval, time.Millisecond, longest),
		base.Settle("USER_TIMEOUT", &c.UserTimeout, defaultUserTimeout, time.Millisecond, longest),
		base.Settle("LINGER", &c.Linger, defaultLinger, time.Millisecond, longest),
	)
}

// Validate checks the ranges, for config.FromEnv.
func (c *Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

// allowedUnnamed is MAX_UNNAMED, or half of the descriptors that the process may have.
func (c *Config) allowedUnnamed() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur/2 < uint64(c.MaxUnnamed) {
		return max(int(limit.Cur/2), 1)
	}
	return c.MaxUnnamed
}
