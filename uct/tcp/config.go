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
	Devices       []string       `env:"DEVICES" doc:"Network devices that are offered and listened on, and no others: names, or all for every device that is up and leads to other hosts. A name that no device has is an error. Empty means loopback and, when a worker listens on or dials from an address of the network, the device of that address."`
	Port          PortRange      `env:"PORT" default:"0" doc:"Port on which an interface listens, or first and last of a range, such as 7700-7799: the first one that is free. A worker needs one on each of its devices. 0 lets the kernel choose."`
	SharePort     config.Ternary `env:"SHARE_PORT" default:"try" doc:"Peers that have dialed a worker connect to the port that it listens on, so that a firewall has to permit one port only. try: interfaces listen on a port of their own besides, to which peers connect if that fails. y: an interface on the network that is opened because the worker listens has no port of its own. n: peers connect to the interface's own port only."`
	SegSize       config.MemSize `env:"SEG_SIZE" default:"64k" doc:"Longest active message without its header. Peers must agree."`
	TxBuf         config.MemSize `env:"TX_BUF" default:"256k" doc:"Transmit buffer of a connection; at least two segments are taken."`
	RxBuf         config.MemSize `env:"RX_BUF" default:"64k" doc:"Receive buffer of a connection; at least a segment is taken."`
	TxOps         int            `env:"TX_OPS" default:"1024" doc:"Operations in flight with a completion or an answer, on all connections together."`
	Join          config.MemSize `env:"JOIN" default:"64k" doc:"So many bytes of small messages are joined before they are written."`
	JoinV         config.MemSize `env:"JOINV" default:"256k" doc:"So many bytes of zero-copy sends that follow one another are written together."`
	SendvThresh   config.MemSize `env:"SENDV_THRESH" default:"2k" doc:"Zero-copy operations of up to this length are copied."`
	Congestion    string         `env:"CONGESTION" doc:"Congestion control of connections (TCP_CONGESTION), such as cubic; empty for reno on loopback and the system's default elsewhere."`
	SndBuf        config.MemSize `env:"SNDBUF" default:"auto" doc:"Send buffer of a socket (SO_SNDBUF); auto leaves it to the kernel."`
	RcvBuf        config.MemSize `env:"RCVBUF" default:"auto" doc:"Receive buffer of a socket (SO_RCVBUF); auto leaves it to the kernel."`
	ConnTimeout   time.Duration  `env:"CONN_TIMEOUT" default:"10s" doc:"Time in which a connection must be established; time in which the worker makes no progress does not count. An interface dials 256 at a time, or 4 while the process dials as many; the time of the others begins when they are dialed."`
	HelloTimeout  time.Duration  `env:"HELLO_TIMEOUT" default:"10s" doc:"Time in which the handshake of an accepted connection must end: as long as peers try to connect (CONN_TIMEOUT). A peer that no endpoint here names must also send a first frame, and the rest of each frame, within this time."`
	MaxHandshakes int            `env:"MAX_HANDSHAKES" default:"1024" doc:"Accepted connections of peers that no endpoint here names, with or without a handshake; at most half of the file descriptors of the process. One more evicts the oldest of the host that has most. As many peers as may connect at once. With TLS, connections after the handshake do not count."`
	MaxConns      int            `env:"MAX_CONNS" default:"4096" doc:"Connections of an interface. One more evicts the oldest of a peer that no endpoint here names; without such a connection the new peer is refused."`
	ConnsPerPeer  int            `env:"MAX_CONN_PER_PEER" default:"1" doc:"Connections to a peer, at most 16: long puts are striped over them. More than one pays where one flow does not fill the link, not on loopback. The smaller number of the two sides counts."`
	StripeThresh  config.MemSize `env:"STRIPE_THRESH" default:"1m" doc:"Zero-copy puts of at least this length are striped, if there are connections to stripe over."`
	KeepIdle      time.Duration  `env:"KEEPIDLE" default:"10s" doc:"Silence after which a peer is probed (TCP_KEEPIDLE)."`
	KeepInterval  time.Duration  `env:"KEEPINTVL" default:"2s" doc:"Time between probes (TCP_KEEPINTVL)."`
	UserTimeout   time.Duration  `env:"USER_TIMEOUT" default:"20s" doc:"Time after which a host that acknowledges nothing of what it is sent, data or probes, is taken for gone; one second is the least. A process that reads nothing may take as long as it likes."`
	Linger        time.Duration  `env:"LINGER" default:"5s" doc:"Longest time that closing an interface waits for its last bytes to be taken by the peer's host."`

	TLSCert string `env:"TLS_CERT" doc:"File with this side's certificate and those between it and the authority (PEM). With TLS_CERT, TLS_KEY and TLS_CA every connection uses TLS 1.3 with certificates on both sides, and peers without are refused: connections of the transport and the tcp sockets of Listen and Dial. With none of them, all of it goes in clear."`
	TLSKey  string `env:"TLS_KEY" doc:"File with the private key of TLS_CERT (PEM)."`
	TLSCA   string `env:"TLS_CA" doc:"File with the authorities that certificates of peers must come from (PEM)."`
	TLSName string `env:"TLS_NAME" doc:"Name that certificates of all peers must carry: a DNS name, an IP address or a URI, of which one that ends in /* permits all below it, such as spiffe://cluster/*. Empty means the IP address at the other end of the connection. Both sides check."`

	// TLS is used in place of the files. It needs certificates for both roles,
	// RootCAs and ClientCAs; versions below 1.3, resumption and clients without
	// certificates are turned off whatever it says.
	TLS *tls.Config

	// sys replaces the system calls on connected sockets, for tests of faults.
	sys sockio.IO
}

// Defaults and limits.
const (
	defaultSegSize      = 64 << 10
	defaultTxBuf        = 256 << 10
	defaultRxBuf        = 64 << 10 // stays in the second-level cache, see experiment 0123 in docs/perf
	defaultTxOps        = 1024
	defaultJoin         = 64 << 10
	defaultJoinV        = 256 << 10
	defaultSendv        = 2 << 10
	defaultConnTimeout  = 10 * time.Second
	defaultHelloTimeout = defaultConnTimeout
	defaultHandshakes   = backlog
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

// loopbackDevice is the device that is offered without being named. It may be absent: in a new network
// namespace it is down.
const loopbackDevice = "lo"

// deviceListed reports whether the configuration names the device or all.
func (c *Config) deviceListed(name string) bool {
	if len(c.Devices) == 0 {
		return name == loopbackDevice
	}
	return slices.Contains(c.Devices, name) || slices.Contains(c.Devices, allDevices)
}

// selectDevices returns those of devs that the configuration selects, and those that it names and
// that are not in devs, such as a bridge of this host. ErrInvalidParam if one cannot be used.
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
		base.Settle("SEG_SIZE", &c.SegSize, defaultSegSize, minSegSize, maxSegSize),
		base.Settle("TX_BUF", &c.TxBuf, defaultTxBuf, 1, maxBuf),
		base.Settle("RX_BUF", &c.RxBuf, defaultRxBuf, 1, maxBuf),
		base.Settle("JOIN", &c.Join, defaultJoin, 1, maxBuf),
		base.Settle("JOINV", &c.JoinV, defaultJoinV, 1, maxBuf),
		base.Settle("STRIPE_THRESH", &c.StripeThresh, defaultStripe, 1, maxRMA),
		base.Settle("SENDV_THRESH", &c.SendvThresh, defaultSendv, 1, maxSegSize),
	)
	if err != nil {
		return err
	}
	c.TxBuf = max(c.TxBuf, 2*(c.SegSize+perFrame))
	c.RxBuf = max(c.RxBuf, c.SegSize+2*perFrame)
	c.SendvThresh = min(c.SendvThresh, c.SegSize)
	c.JoinV = max(c.JoinV, c.Join)
	return nil
}

func (c *Config) counts() error {
	return cmp.Or(
		base.Settle("TX_OPS", &c.TxOps, defaultTxOps, 1, 1<<20),
		base.Settle("MAX_HANDSHAKES", &c.MaxHandshakes, defaultHandshakes, 1, 1<<16),
		base.Settle("MAX_CONN_PER_PEER", &c.ConnsPerPeer, defaultPerPeer, 1, maxPerPeer),
		base.Settle("MAX_CONNS", &c.MaxConns, defaultMaxConns, 1, 1<<20),
	)
}

func (c *Config) times() error {
	const longest = time.Hour // fits the kernel's fields in seconds and milliseconds
	return cmp.Or(
		base.Settle("CONN_TIMEOUT", &c.ConnTimeout, defaultConnTimeout, time.Millisecond, longest),
		base.Settle("HELLO_TIMEOUT", &c.HelloTimeout, defaultHelloTimeout, time.Millisecond, longest),
		base.Settle("KEEPIDLE", &c.KeepIdle, defaultKeepIdle, time.Millisecond, longest),
		base.Settle("KEEPINTVL", &c.KeepInterval, defaultKeepInterval, time.Millisecond, longest),
		base.Settle("USER_TIMEOUT", &c.UserTimeout, defaultUserTimeout, time.Millisecond, longest),
		base.Settle("LINGER", &c.Linger, defaultLinger, time.Millisecond, longest),
	)
}

// sharesPort reports whether peers connect to the port of a listener of the layer above.
func (c *Config) sharesPort() bool { return c.SharePort != config.No }

// Validate checks the ranges, for config.FromEnv.
func (c *Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

// tlsProtocol is the application protocol of connections through TLS (ALPN).
const tlsProtocol = "gucx-tcp/2"

// policy is what the configuration demands of connections, nil for plain ones.
func (c *Config) policy() (*tlspolicy.Policy, error) { return c.policyFor(tlsProtocol) }

// policyFor is policy for an application protocol.
func (c *Config) policyFor(protocol string) (*tlspolicy.Policy, error) {
	t := tlspolicy.Config{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSCA, TLS: c.TLS, Name: c.TLSName, Protocol: protocol}
	return t.Policy()
}

// demandsTLS reports whether any setting of TLS is there; policy says whether they are complete.
func (c *Config) demandsTLS() bool {
	return c.TLS != nil || cmp.Or(c.TLSCert, c.TLSKey, c.TLSCA, c.TLSName) != ""
}
