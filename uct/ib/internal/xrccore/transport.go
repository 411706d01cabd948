package xrccore

import (
	"fmt"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// OverVerbs returns a transport that posts and polls by package verbs. overhead is the declared
// cost of a post; defaults is the configuration of ifaces that are opened without a Config.
func OverVerbs(name string, overhead time.Duration, defaults Config) ib.Transport {
	return transport{name, overhead, defaults}
}

type transport struct {
	name     string
	overhead time.Duration
	defaults Config
}

var (
	_ ib.DeviceFilter = transport{}
	_ ib.Explicit     = transport{}
)

// Explicit implements ib.Explicit: without queues, rc is the better transport.
func (transport) Explicit() bool { return true }

// Name implements ib.Transport.
func (t transport) Name() string { return t.name }

// Supports implements ib.DeviceFilter.
func (transport) Supports(dev *verbs.Context) error { return Supported(dev) }

// Supported returns nil if dev supports XRC, and otherwise the reason.
func Supported(dev *verbs.Context) error {
	if !dev.HasXRC() {
		return fmt.Errorf("no XRC: %w", ucs.ErrUnsupported)
	}
	return nil
}

// OpenIface implements ib.Transport. p.Config is nil, a Config or a *Config.
func (t transport) OpenIface(md *ib.MD, port uint8, p uct.IfaceParams) (uct.Iface, error) {
	var cfg Config
	cfg, p.Config = base.SplitConfig(p.Config, t.defaults)
	it, err := Open(md, port, Params{Name: t.name, Config: cfg, Overhead: t.overhead, Base: overVerbs()}, p)
	if err != nil {
		return nil, err
	}
	return it, nil
}
