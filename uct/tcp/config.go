package tcp

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gucx/gucx/internal/tlspolicy"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// Config tunes the transport. The zero value is ready to use.
type Config struct {
	Devices       []string       `env:"DEVICES" doc:"Network devices to offer and to listen on: names, or all for every device that is up and leads to other hosts. A name that no device has is an error. Empty: loopback, and the device of an address of the network that a worker listens on or dials from."`
	Port          PortRange      `env:"PORT" default:"0" doc:"TCP port of an interface (UCX: PORT_RANGE), or first and last port of a range such as 7700-7799, of which the first free one is used. A worker needs one port per device. 0: the kernel chooses."`
	SharePort     config.Ternary `env:"SHARE_PORT" default:"try" doc:"Peers that have dialed a worker connect to the port of its listener, so that a firewall must permit only one port. try: an interface also has a port of its own, to which peers connect if that fails. y: an interface that is opened because the worker listens has no port of its own. n: peers connect only to the port of the interface."`
	SegSize       config.MemSize `env:"SEG_SIZE" default:"65600" doc:"Maximum length of an active message without its header, in bytes (UCX: TX_SEG_SIZE and RX_SEG_SIZE); 256 to 16m. Peers must use the same value."`
	TxBuf         config.MemSize `env:"TX_BUF" default:"256k" doc:"Size of the transmit buffer of a connection, in bytes; at least two segments are used, at most 256m."`
	RxBuf         config.MemSize `env:"RX_BUF" default:"64k" doc:"Size of the receive buffer of a connection, in bytes; at least one segment is used, at most 256m."`
	TxOps         int            `env:"TX_OPS" default:"1024" doc:"Maximum number of outstanding operations with a completion or a reply, on all connections together; 1 to 1048576."`
	Join          config.MemSize `env:"JOIN" default:"64k" doc:"Bytes of small messages that are collected before they are written to the socket together; 1 to 256m."`
	JoinV         config.MemSize `env:"JOINV" default:"256k" doc:"Bytes of successive zcopy sends that are written to the socket together; JOIN to 256m."`
	SendvThresh   config.MemSize `env:"SENDV_THRESH" default:"2k" doc:"Maximum length of a zcopy operation that is copied nevertheless, in bytes; at most SEG_SIZE."`
	Congestion    string         `env:"CONGESTION" doc:"Congestion control of connections (TCP_CONGESTION), such as cubic. Empty: reno on loopback, elsewhere the default of the system."`
	SndBuf        config.MemSize `env:"SNDBUF" default:"auto" doc:"Size of the send buffer of a socket, in bytes (SO_SNDBUF). auto: the kernel chooses."`
	RcvBuf        config.MemSize `env:"RCVBUF" default:"auto" doc:"Size of the receive buffer of a socket, in bytes (SO_RCVBUF). auto: the kernel chooses."`
	ConnTimeout   time.Duration  `env:"CONN_TIMEOUT" default:"10s" doc:"Maximum time to establish a connection; 1ms to 1h. An interface dials at most 256 at a time; the time of the others starts when they are dialed."`
	HelloTimeout  time.Duration  `env:"HELLO_TIMEOUT" default:"10s" doc:"Maximum time of the handshake of an accepted connection, 1ms to 1h; as CONN_TIMEOUT of the peers. A peer to which no endpoint exists must also send its first frame, and the rest of each frame, within this time."`
	MaxHandshakes int            `env:"MAX_HANDSHAKES" default:"1024" doc:"Maximum number of accepted connections of peers to which no endpoint exists, before or after the handshake; 1 to 65536, and at most half of the file descriptors of the process. A further one evicts the oldest one of the host with the most. It must be at least the number of peers that connect at once. With TLS, connections do not count after the handshake."`
	MaxConns      int            `env:"MAX_CONNS" default:"4096" doc:"Maximum number of connections of an interface; 1 to 1048576. A further one evicts the oldest one that no endpoint uses; if there is none, the new peer is rejected."`
	ConnsPerPeer  int            `env:"MAX_CONN_PER_PEER" default:"1" doc:"Number of connections to a peer, 1 to 16; large puts are striped over them. More than 1 is faster only where one connection does not saturate the link; it is not on loopback. The smaller number of the two sides applies."`
	StripeThresh  config.MemSize `env:"STRIPE_THRESH" default:"1m" doc:"Minimum length of a zcopy put that is striped over several connections, in bytes; 1 to 1g."`
	KeepIdle      time.Duration  `env:"KEEPIDLE" default:"10s" doc:"Time without data after which a peer is probed (TCP_KEEPIDLE); 1ms to 1h."`
	KeepInterval  time.Duration  `env:"KEEPINTVL" default:"2s" doc:"Time between two probes (TCP_KEEPINTVL); 1ms to 1h."`
	UserTimeout   time.Duration  `env:"USER_TIMEOUT" default:"20s" doc:"Time after which a host that does not acknowledge data or probes counts as dead (TCP_USER_TIMEOUT); 1ms to 1h, at least 1s is used. A process that does not read has no time limit."`
	Linger        time.Duration  `env:"LINGER" default:"5s" doc:"Maximum time that closing an interface waits until the hosts of its peers have acknowledged the last bytes; 1ms to 1h."`

	TLSCert string `env:"TLS_CERT" doc:"File with the certificate of this side and the intermediate certificates (PEM). With TLS_CERT, TLS_KEY and TLS_CA, connections of the transport and the tcp sockets of Listen and Dial use TLS 1.3 with certificates of both sides; peers without TLS are rejected. With none of them, nothing is encrypted."`
	TLSKey  string `env:"TLS_KEY" doc:"File with the private key of TLS_CERT (PEM)."`
	TLSCA   string `env:"TLS_CA" doc:"File with the certificate authorities that must have issued the certificates of peers (PEM)."`
	TLSName string `env:"TLS_NAME" doc:"Name that the certificates of all peers must contain: a DNS name, an IP address or a URI. A URI that ends in /* permits all names below it, such as spiffe://cluster/*. Empty: the IP address of the peer. Both sides check."`

	// TLS replaces the files. It needs certificates for both roles, RootCAs and ClientCAs. The
	// minimum version is 1.3, and session resumption and clients without certificates are off,
	// regardless of its fields.
	TLS *tls.Config

	// sys replaces the system calls on connected sockets, for tests of faults.
	sys sockio.IO
}

// Defaults and limits.
const (
	defaultSegSize      = 64<<10 + 64 // 64 KiB and the headers of ucp
	defaultTxBuf        = 256 << 10
	defaultRxBuf        = 64 << 10 // fits in the L2 cache, see experiment 0123 in docs/perf
	defaultTxOps        = 1024
	defaultJoin         = 64 << 10
	defaultJoinV        = 256 << 10
	defaultSendv        = 2 << 10
	defaultConnTimeout  = 10 * time.Second
	defaultHelloTimeout = defaultConnTimeout
	defaultHandshakes   = sockio.Backlog
	defaultMaxConns     = 4096
	defaultPerPeer      = 1
	defaultStripe       = 1 << 20
	defaultKeepIdle     = 10 * time.Second
	defaultKeepInterval = 2 * time.Second
	defaultUserTimeout  = 20 * time.Second
	defaultLinger       = 5 * time.Second

	minSegSize = 256
	maxSegSize = 16 << 20
	maxBuf     = 256 << 20
	maxShort   = 8 << 10
	maxPerPeer = 16
)

// allDevices in Config.Devices selects every usable device.
const allDevices = "all"

// loopbackDevice is offered unless the configuration names devices. It can be missing: in a new
// network namespace it is down.
const loopbackDevice = "lo"

// deviceListed reports whether the configuration names the device or all.
func (c *Config) deviceListed(name string) bool {
	if len(c.Devices) == 0 {
		return name == loopbackDevice
	}
	return slices.Contains(c.Devices, name) || slices.Contains(c.Devices, allDevices)
}

// selectDevices returns those of devs that the configuration selects, and also devices that it
// names and that are not in devs, such as a bridge. ErrInvalidParam if a named device cannot be
// used.
func (c *Config) selectDevices(devs []device) (selected []device, err error) {
	var names []string
	for i := range devs {
		names = append(names, devs[i].name)
		if c.deviceListed(devs[i].name) {
			selected = append(selected, devs[i])
		}
	}
	for _, name := range c.Devices {
		if name == allDevices || name == loopbackDevice || slices.Contains(names, name) {
			continue
		}
		d, err := findDevice(name)
		if err != nil {
			return nil, fmt.Errorf("GUCX_TCP_DEVICES: %w; the nearest device is %q, all are: %s (ip address)",
				err, config.Nearest(name, names), strings.Join(names, ", "))
		}
		selected = append(selected, d)
	}
	return selected, nil
}

// withDefaults replaces zeros and checks ranges.
func (c Config) withDefaults() (Config, error) {
	if err := c.sizes(); err != nil {
		return c, err
	}
	if err := c.counts(); err != nil {
		return c, err
	}
	return c, cmp.Or(c.times(), c.Port.validate())
}

func (c *Config) sizes() error {
	err := cmp.Or(
		base.SetDefault("SEG_SIZE", &c.SegSize, defaultSegSize, minSegSize, maxSegSize),
		base.SetDefault("TX_BUF", &c.TxBuf, defaultTxBuf, 1, maxBuf),
		base.SetDefault("RX_BUF", &c.RxBuf, defaultRxBuf, 1, maxBuf),
		base.SetDefault("JOIN", &c.Join, defaultJoin, 1, maxBuf),
		base.SetDefault("JOINV", &c.JoinV, defaultJoinV, 1, maxBuf),
		base.SetDefault("STRIPE_THRESH", &c.StripeThresh, defaultStripe, 1, maxRMA),
		base.SetDefault("SENDV_THRESH", &c.SendvThresh, defaultSendv, 1, maxSegSize),
	)
	if err != nil {
		return err
	}
	c.TxBuf = max(c.TxBuf, 2*(c.SegSize+frameOverhead))
	c.RxBuf = max(c.RxBuf, c.SegSize+2*frameOverhead)
	c.SendvThresh = min(c.SendvThresh, c.SegSize)
	c.JoinV = max(c.JoinV, c.Join)
	return nil
}

func (c *Config) counts() error {
	return cmp.Or(
		base.SetDefault("TX_OPS", &c.TxOps, defaultTxOps, 1, 1<<20),
		base.SetDefault("MAX_HANDSHAKES", &c.MaxHandshakes, defaultHandshakes, 1, 1<<16),
		base.SetDefault("MAX_CONN_PER_PEER", &c.ConnsPerPeer, defaultPerPeer, 1, maxPerPeer),
		base.SetDefault("MAX_CONNS", &c.MaxConns, defaultMaxConns, 1, 1<<20),
	)
}

func (c *Config) times() error {
	const longest = time.Hour // fits in the kernel's fields of seconds and milliseconds
	return cmp.Or(
		base.SetDefault("CONN_TIMEOUT", &c.ConnTimeout, defaultConnTimeout, time.Millisecond, longest),
		base.SetDefault("HELLO_TIMEOUT", &c.HelloTimeout, defaultHelloTimeout, time.Millisecond, longest),
		base.SetDefault("KEEPIDLE", &c.KeepIdle, defaultKeepIdle, time.Millisecond, longest),
		base.SetDefault("KEEPINTVL", &c.KeepInterval, defaultKeepInterval, time.Millisecond, longest),
		base.SetDefault("USER_TIMEOUT", &c.UserTimeout, defaultUserTimeout, time.Millisecond, longest),
		base.SetDefault("LINGER", &c.Linger, defaultLinger, time.Millisecond, longest),
	)
}

// sharesPort reports whether peers connect to the port of a listener of the upper layer.
func (c *Config) sharesPort() bool { return c.SharePort != config.No }

// Validate checks the ranges, for config.FromEnv.
func (c *Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

// tlsProtocol is the application protocol of connections through TLS (ALPN).
const tlsProtocol = "gucx-tcp/2"

// policy returns the TLS requirements for connections; nil without TLS.
func (c *Config) policy() (*tlspolicy.Policy, error) { return c.policyFor(tlsProtocol) }

// policyFor is policy for an application protocol.
func (c *Config) policyFor(protocol string) (*tlspolicy.Policy, error) {
	t := tlspolicy.Config{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSCA, TLS: c.TLS, Name: c.TLSName, Protocol: protocol}
	return t.Policy()
}

// demandsTLS reports whether any TLS setting is present. policy checks whether the settings are
// complete.
func (c *Config) demandsTLS() bool {
	return c.TLS != nil || cmp.Or(c.TLSCert, c.TLSKey, c.TLSCA, c.TLSName) != ""
}
