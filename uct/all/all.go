// Package all is the one list of transports. Main programs and tests pass it to
// ucp; nothing registers itself, and package ucp imports no transport.
package all

import (
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/connectx"
	"github.com/gucx/gucx/uct/ib/verbs/rxe"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ib/xrc"
	"github.com/gucx/gucx/uct/self"
	"github.com/gucx/gucx/uct/sm"
	"github.com/gucx/gucx/uct/tcp"
)

// Config has the configuration of every transport. The zero value is the default.
type Config struct {
	SM sm.Config
	IB ib.Config // of RC, UD, XRC, and of these over mlx5 queues
	RC rc.Config
	UD ud.Config
	// RCMLX5 and UDMLX5 are for the same over queues that are driven directly.
	RCMLX5 dv.RCConfig
	UDMLX5 dv.UDConfig
	// XRC is rc with receive queues, XRCMLX5 the same over RCMLX5.
	XRC     xrc.Config
	XRCMLX5 dv.XRCConfig

	Self self.Config
	TCP  tcp.Config
	// Adapters says which hardware is used, unless Devices is set.
	Adapters Adapters
	// Devices lists the verbs devices; nil means the package's function Devices, and Adapters.
	Devices func() ([]*verbs.Device, error)
}

// Adapters says which hardware is used.
type Adapters struct {
	// ConnectX uses the devices of the kernel's driver mlx5: see package connectx, which has never run on one.
	ConnectX bool `env:"CONNECTX" default:"n" doc:"Use ConnectX adapters through the kernel driver mlx5. This was not tested with an adapter: run perftest hardware-check first."`
}

// Tables are the parts of c that the environment can set, for config.FromEnv:
// GUCX_SM_*, GUCX_RC_* and so on.
func (c *Config) Tables() []config.Table {
	return []config.Table{
		{Prefix: "SM", Doc: "Memory shared between processes of a host (sm).", Config: &c.SM},
		{Doc: "Hardware", Config: &c.Adapters},
		{Doc: "All transports over InfiniBand devices", Config: &c.IB},
		{Prefix: "RC", Doc: "Reliable connections over InfiniBand verbs (rc).", Config: &c.RC},
		{Prefix: "UD", Doc: "Unreliable datagrams over InfiniBand verbs (ud).", Config: &c.UD},
		{Prefix: "RC_MLX5", Doc: "Reliable connections over mlx5 queues, without verbs (rc_mlx5).", Config: &c.RCMLX5},
		{Prefix: "UD_MLX5", Doc: "Unreliable datagrams over mlx5 queues, without verbs (ud_mlx5).", Config: &c.UDMLX5},
		{Prefix: "XRC", Doc: "Reliable connections with receive queues that peers send to by number (xrc), for who names it in TLS.", Config: &c.XRC},
		{Prefix: "XRC_MLX5", Doc: "The same over mlx5 queues, without verbs (xrc_mlx5), for who names it in TLS.", Config: &c.XRCMLX5},
		{Prefix: "SELF", Doc: "Loopback within a worker (self).", Config: &c.Self},
		{Prefix: "TCP", Doc: "Sockets (tcp).", Config: &c.TCP},
	}
}

// Devices lists the verbs devices that a program has without asking: the software HCA, and those of the kernel
// that there is a provider for.
func Devices() ([]*verbs.Device, error) {
	soft, err := softhca.Devices()
	if err != nil {
		return nil, err
	}
	kernel, err := rxe.Devices()
	return append(soft, kernel...), err
}

// devices lists the verbs devices that c is for.
func (c Config) devices() ([]*verbs.Device, error) {
	list, err := Devices()
	if err != nil || !c.Adapters.ConnectX {
		return list, err
	}
	adapters, err := connectx.Devices()
	return append(list, adapters...), err
}

// Components makes every component with its default configuration.
func Components() []uct.Component { return Config{}.Components() }

// Components makes every component, configured by c. The order breaks ties between
// transports that cost the same, and decides nothing else.
func (c Config) Components() []uct.Component {
	devices := c.Devices
	if devices == nil {
		devices = c.devices
	}
	return []uct.Component{
		sm.New(c.SM),
		c.IB.New(devices, rc.Transport(c.RC), ud.Transport(c.UD), dv.RC(c.RCMLX5), dv.UD(c.UDMLX5),
			xrc.Transport(c.XRC), dv.XRC(c.XRCMLX5)),
		self.New(c.Self),
		tcp.New(c.TCP),
	}
}
