package dv

import (
	"cmp"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/xrccore"
)

// xrcOverhead exceeds rcOverhead by a little, like that of xrc and rc.
const xrcOverhead = 45 * time.Nanosecond

// XRCConfig has the settings of xrc and those that only xrc_mlx5 has. The zero value is
// ready to use.
type XRCConfig struct {
	xrccore.Config
	TxPostlist int `env:"TX_POSTLIST" default:"1" doc:"Number of work requests of an endpoint per doorbell, as with rc_mlx5; 1 with SHARE_DOMAIN."`
}

// Validate checks the ranges, for config.FromEnv, and replaces zeros of the settings that xrc does
// not have by the defaults.
func (c *XRCConfig) Validate() error {
	return cmp.Or(checkPostlist(&c.TxPostlist), c.Config.Validate())
}

// XRC makes the reliable-connected transport with receive queues for ib.New. Ifaces that are opened
// without a Config use defaults.
func XRC(defaults XRCConfig) ib.Transport {
	return transport{name: XRCName, needs: xrccore.Supported, explicit: true,
		open: func(md *ib.MD, port uint8, p uct.IfaceParams) (uct.Iface, error) {
			return openXRC(md, port, p, defaults)
		}}
}

func openXRC(md *ib.MD, port uint8, p uct.IfaceParams, cfg XRCConfig) (uct.Iface, error) {
	cfg, p.Config = base.SplitConfig(p.Config, cfg)
	cfg.Config, p.Config = base.SplitConfig(p.Config, cfg.Config)
	if err := checkPostlist(&cfg.TxPostlist); err != nil {
		return nil, &ucs.OpError{TL: XRCName, Dev: p.Device, Op: "open iface", Err: err}
	}
	if cfg.Shares() {
		cfg.TxPostlist = 1
	}
	it, self := newRC(cfg.TxPostlist)
	out, err := xrccore.Open(md, port, xrccore.Params{Name: XRCName, Config: cfg.Config, Overhead: xrcOverhead,
		Base: xrccore.Base{Core: &it.Iface, Iface: self, Driver: it, Poster: it}}, p)
	if err != nil {
		return nil, err
	}
	it.setLimits(cfg.TxPostlist)
	return out, nil
}
