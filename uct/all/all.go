// Package all is the one list of transports. Main programs and tests pass it to
// ucp; nothing registers itself, and package ucp imports no transport.
package all

import (
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Config has the configuration of every transport. The zero value is the default.
type Config struct {
	RC rc.Config
	UD ud.Config
	// Devices lists the verbs devices; nil means softhca.Devices.
	Devices func() ([]*verbs.Device, error)
}

// Tables are the parts of c that the environment can set, for config.FromEnv:
// GUCX_RC_* and GUCX_UD_*.
func (c *Config) Tables() []config.Table {
	return []config.Table{
		{Prefix: "RC", Doc: "Reliable connections over InfiniBand verbs (rc).", Config: &c.RC},
		{Prefix: "UD", Doc: "Unreliable datagrams over InfiniBand verbs (ud).", Config: &c.UD},
	}
}

// Components makes every component with its default configuration.
func Components() []uct.Component { return Config{}.Components() }

// Components makes every component, configured by c.
func (c Config) Components() []uct.Component {
	devices := c.Devices
	if devices == nil {
		devices = softhca.Devices
	}
	return []uct.Component{
		ib.New(devices, rc.Transport(c.RC), ud.Transport(c.UD)),
	}
}
