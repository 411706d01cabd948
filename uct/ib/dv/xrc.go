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

// xrcOverhead is a little above rcOverhead, as that of xrc is above that of rc.
const xrcOverhead = 45 * time.Nanosecond

// XRCConfig tunes xrc_mlx5: what xrc has, and how it posts. The zero value is ready to
// use.
type XRCConfig struct {
	xrccore.Config
	TxPostlist int `env:"TX_POSTLIST" default:"1" doc:"Number of work requests of an endpoint per doorbell, as with rc_mlx5; 1 with SHARE_DOMAIN."`
}

// Validate checks the ranges, for config.FromEnv, and replaces zeros of what xrc does not
// have.
func (c *XRCConfig) Validate() error {
	return cmp.Or(checkPostlist(&c.TxPostlist), c.Config.Validate())
}

// XRC makes the reliable-connected transport with receive queues for ib.New. defaults are
// used by ifaces that are opened without a Config.
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
