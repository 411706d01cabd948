// Package layers contains the list of layers that perftest measures, configured by the environment
// like any program that uses gucx.
package layers

import (
	"github.com/gucx/gucx"
	"github.com/gucx/gucx/perftest/internal/layers/averbslayer"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/ucplayer"
	"github.com/gucx/gucx/perftest/internal/layers/uctlayer"
	"github.com/gucx/gucx/perftest/internal/layers/verbslayer"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/xrc"
)

// Config is the configuration from the environment, and the verbs devices.
type Config struct {
	gucx.Config
	// Devices lists the verbs devices of a fabric; nil means device.List.
	Devices device.Lister
}

// Components creates the components, with the verbs devices of a fabric. Those of the program are
// last.
func (c Config) Components(fabric string) []uct.Component {
	list := c.devices()
	c.UCT.Devices = func() ([]*verbs.Device, error) { return list(fabric) }
	return c.Config.Components()
}

func (c Config) devices() device.Lister {
	if c.Devices == nil {
		return device.List
	}
	return c.Devices
}

// FromEnv reads GUCX_ variables from a list such as os.Environ.
func FromEnv(environ []string, own gucx.Own) (Config, error) {
	c, err := gucx.FromEnv(environ, own)
	return Config{Config: c}, err
}

// Names lists the layers from the lowest to the highest.
func Names() []string {
	return []string{verbslayer.Name, averbslayer.Name, uctlayer.Name, ucplayer.Name}
}

// Of lists the layers that can measure a transport with these caps: uct and ucp always; verbs if
// the transport uses a verbs device and supports more than messages. averbs is not included; it is
// for the study of UCX.
func Of(t *device.Transport, caps uct.Caps) (names []string) {
	oneSided := caps&(uct.CapPut|uct.CapGet|uct.CapAtomic) != 0
	if t.OverVerbs() && oneSided {
		names = append(names, verbslayer.Name)
	}
	return append(names, uctlayer.Name, ucplayer.Name)
}

// reliable returns the configuration of a transport over reliable connections.
func (c Config) reliable(transport string) rc.Config {
	switch transport {
	case dv.RCName:
		return c.UCT.RCMLX5.WithDefaultInline().Config
	case xrc.Name:
		return c.UCT.XRC.Config
	case dv.XRCName:
		return c.UCT.XRCMLX5.Config.Config
	}
	return c.UCT.RC
}

// Explain returns the explanation of ucp for an EP between two processes of this host; see
// ucplayer.Explain. transport is the only transport that the EP may use; empty selects those of the
// configuration.
func (c Config) Explain(fabric, transport string) (string, error) {
	cfg := c.UCP
	if transport != "" {
		cfg.TLS = config.Allow(ucp.Exact(transport))
	}
	return ucplayer.Explain(cfg, func() []uct.Component { return c.Components(fabric) })
}

// Set returns the openers of the layers.
func (c Config) Set() layer.Set {
	s := layer.Set{Names: Names(), Open: map[string]layer.Opener{
		verbslayer.Name:  verbslayer.New(c.reliable, c.devices()).Open,
		averbslayer.Name: averbslayer.New(verbslayer.New(c.reliable, c.devices())).Open,
		uctlayer.Name:    uctlayer.New(c.Components).Open,
		ucplayer.Name:    ucplayer.New(c.UCP, c.Components).Open,
	}}
	c.openForced(s.Open)
	c.openWithoutRemedies(s.Open)
	return s
}
