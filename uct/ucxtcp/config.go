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
	Devices      []string       `env:"DEVICES" doc:"Network devices to offer, by name, or all. Empty: loopback."`
	Family       string         `env:"FAMILY" doc:"Address family of a device that has both: inet or inet6 (UCX: AF_PRIO). Empty: inet. The loopback device uses inet6 only if this is set."`
	Port         int            `env:"PORT" default:"0" doc:"TCP port of an interface (UCX: PORT_RANGE). 0: the kernel chooses."`
	LoopbackAddr string         `env:"LOOPBACK_ADDR" doc:"Format of the address of a loopback device: wide, as in UCX up to release 1.18, or narrow, as in later ones. Peers reach each other over loopback only with the same format. Empty: wide."`
	TxSegSize    config.MemSize `env:"TX_SEG_SIZE" default:"8k" doc:"Maximum length of an active message that is sent by bcopy, in bytes; 64 to MAX_FRAME."`
	MaxFrame     config.MemSize `env:"MAX_FRAME" default:"64k" doc:"Maximum length of an active message that is sent or received, in bytes: RX_SEG_SIZE of the UCX peers; 512 to 16m."`
	TxBuf        config.MemSize `env:"TX_BUF" default:"256k" doc:"Size of the transmit buffer of a connection, in bytes; at least two frames are used, at most 256m."`
	RxBuf        config.MemSize `env:"RX_BUF" default:"128k" doc:"Size of the receive buffer of a connection, and maximum of unprocessed bytes of a peer that are stored; at least one frame is used, at most 256m."`
	TxOps        int            `env:"TX_OPS" default:"1024" doc:"Maximum number of outstanding zcopy sends and flushes, on all connections together; 1 to 1048576."`
	Join         config.MemSize `env:"JOIN" default:"64k" doc:"Bytes of small messages that are collected before they are written to the socket together; 1 to 256m."`
	SendvThresh  config.MemSize `env:"SENDV_THRESH" default:"2k" doc:"Maximum length of a zcopy send that is copied nevertheless, in bytes; at most TX_SEG_SIZE."`
	SndBuf       config.MemSize `env:"SNDBUF" default:"auto" doc:"Size of the send buffer of a socket, in bytes (SO_SNDBUF). auto: the kernel chooses."`
	RcvBuf       config.MemSize `env:"RCVBUF" default:"auto" doc:"Size of the receive buffer of a socket, in bytes (SO_RCVBUF). auto: the kernel chooses."`

	ConnTimeout  time.Duration `env:"CONN_TIMEOUT" default:"10s" doc:"Maximum time to establish a connection; 1ms to 1h."`
	HelloTimeout time.Duration `env:"HELLO_TIMEOUT" default:"10s" doc:"Maximum time until an accepted connection has sent its connection request; 1ms to 1h. A peer to which no endpoint exists must also send the rest of each frame within this time."`
	MaxUnnamed   int           `env:"MAX_UNNAMED" default:"1024" doc:"Maximum number of accepted connections of peers to which no endpoint exists; 1 to 65536, and at most half of the file descriptors of the process. A further one evicts one of the source with the most: the oldest without a connection request, else the oldest."`
	MaxPerSource int           `env:"MAX_PER_SOURCE" default:"512" doc:"Maximum number of these connections from one IP address, or from one /64 network of IPv6; 1 to 65536. A further one evicts another one of the same source."`
	MaxConns     int           `env:"MAX_CONNS" default:"4096" doc:"Maximum number of connections of an interface; 1 to 1048576. A further one evicts a connection that no endpoint uses; if there is none, the new one is rejected."`
	AnySource    bool          `env:"ANY_SOURCE" doc:"Accept connection requests of peers that listen on another IP address than they connect from, as hosts with several addresses may do. They are rejected otherwise, because the address in the request is only the peer's claim."`
	KeepIdle     time.Duration `env:"KEEPIDLE" default:"10s" doc:"Time without data after which a peer is probed (TCP_KEEPIDLE); 1ms to 1h."`
	KeepInterval time.Duration `env:"KEEPINTVL" default:"2s" doc:"Time between two probes (TCP_KEEPINTVL); 1ms to 1h."`
	UserTimeout  time.Duration `env:"USER_TIMEOUT" default:"20s" doc:"Time after which a host that does not acknowledge data or probes counts as dead (TCP_USER_TIMEOUT); 1ms to 1h, at least 1s is used. A process that does not read has no time limit."`
	Linger       time.Duration `env:"LINGER" default:"5s" doc:"Maximum time that closing an interface waits until the hosts of its peers have acknowledged the last bytes; 1ms to 1h."`

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

// loopbackDevice is offered unless the configuration names devices.
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
		base.SetDefault("MAX_FRAME", &c.MaxFrame, defaultMaxFrame, minFrame, maxFrame),
		base.SetDefault("TX_SEG_SIZE", &c.TxSegSize, min(defaultTxSeg, c.MaxFrame), 64, c.MaxFrame),
		base.SetDefault("TX_BUF", &c.TxBuf, defaultTxBuf, 1, maxBuf),
		base.SetDefault("RX_BUF", &c.RxBuf, defaultRxBuf, 1, maxBuf),
		base.SetDefault("JOIN", &c.Join, defaultJoin, 1, maxBuf),
		base.SetDefault("SENDV_THRESH", &c.SendvThresh, defaultSendv, 1, maxFrame),
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
		base.SetDefault("TX_OPS", &c.TxOps, defaultTxOps, 1, 1<<20),
		base.SetDefault("MAX_UNNAMED", &c.MaxUnnamed, defaultUnnamed, 1, 1<<16),
		base.SetDefault("MAX_PER_SOURCE", &c.MaxPerSource, min(defaultPerSource, c.MaxUnnamed), 1, 1<<16),
		base.SetDefault("MAX_CONNS", &c.MaxConns, defaultMaxConns, 1, 1<<20),
	)
}

func (c *Config) times() error {
	const maxAM = time.Hour // fits in the kernel's fields of seconds
	return cmp.Or(
		base.SetDefault("CONN_TIMEOUT", &c.ConnTimeout, defaultConnTimeout, time.Millisecond, maxAM),
		base.SetDefault("HELLO_TIMEOUT", &c.HelloTimeout, defaultHelloTimeout, time.Millisecond, maxAM),
		base.SetDefault("KEEPIDLE", &c.KeepIdle, defaultKeepIdle, time.Millisecond, maxAM),
		base.SetDefault("KEEPINTVL", &c.KeepInterval, defaultKeepInterval, time.Millisecond, maxAM),
		base.SetDefault("USER_TIMEOUT", &c.UserTimeout, defaultUserTimeout, time.Millisecond, maxAM),
		base.SetDefault("LINGER", &c.Linger, defaultLinger, time.Millisecond, maxAM),
	)
}

// Validate checks the ranges, for config.FromEnv.
func (c *Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

// allowedUnnamed returns MAX_UNNAMED, but at most half of the descriptors that the process may
// open.
func (c *Config) allowedUnnamed() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur/2 < uint64(c.MaxUnnamed) {
		return max(int(limit.Cur/2), 1)
	}
	return c.MaxUnnamed
}
