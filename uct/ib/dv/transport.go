package dv

import (
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/internal/udcore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Names of the transports in uct.Resource.
const (
	RCName  = "rc_mlx5"
	UDName  = "ud_mlx5"
	XRCName = "xrc_mlx5"
)

// RCConfig has the settings of rc and those that only rc_mlx5 has. The zero value is
// ready to use.
type RCConfig struct {
	rccore.Config
	TxPostlist int `env:"TX_POSTLIST" default:"1" doc:"Number of work requests of an endpoint per doorbell, 1 to TX_QUEUE_LEN. With more than 1, a posted request may remain in the queue until there are as many, or until the next progress, flush, fence, arm or close: call one of them after the last post."`
}

// maxPostlist is the maximum length of a send queue.
const maxPostlist = 1 << 15

// Validate checks the range of the settings that rc does not have, for config.FromEnv, and replaces
// zero by the default.
func (c *RCConfig) Validate() error { return checkPostlist(&c.TxPostlist) }

// checkPostlist checks the range of TX_POSTLIST and replaces zero by the default.
func checkPostlist(n *int) error {
	return base.SetDefault("TX_POSTLIST", n, 1, 1, maxPostlist)
}

// RC makes the reliable-connected transport for ib.New. Ifaces that are opened without a Config use
// defaults.
func RC(defaults RCConfig) ib.Transport {
	return transport{name: RCName, open: func(md *ib.MD, port uint8, p uct.IfaceParams) (uct.Iface, error) {
		return openRC(md, port, p, defaults)
	}}
}

// UDConfig has the settings of ud and those that only ud_mlx5 has. The zero value is
// ready to use.
type UDConfig struct {
	udcore.Config
	TxPostlist int `env:"TX_POSTLIST" default:"1" doc:"Number of datagrams per doorbell. With more than 1, a posted datagram may remain in the queue until there are as many, or until the next progress, flush of the interface, arm or close: call one of them after the last post."`
}

// Validate checks the range of the settings that ud does not have, for config.FromEnv, and replaces
// zero by the default.
func (c *UDConfig) Validate() error { return checkPostlist(&c.TxPostlist) }

// UD makes the datagram transport for ib.New. Ifaces that are opened without a Config use defaults.
func UD(defaults UDConfig) ib.Transport {
	return transport{name: UDName, open: func(md *ib.MD, port uint8, p uct.IfaceParams) (uct.Iface, error) {
		return openUD(md, port, p, defaults)
	}}
}

// transport implements ib.Transport, ib.DeviceFilter and ib.Explicit.
type transport struct {
	name     string
	open     func(md *ib.MD, port uint8, p uct.IfaceParams) (uct.Iface, error)
	needs    func(dev *verbs.Context) error // returns why dev does not support the transport; nil if there are no further requirements
	explicit bool
}

// Name implements ib.Transport.
func (t transport) Name() string { return t.name }

// OpenIface implements ib.Transport. p.Config is nil, a configuration of the
// transport or a pointer to one.
func (t transport) OpenIface(md *ib.MD, port uint8, p uct.IfaceParams) (uct.Iface, error) {
	if err := t.Supports(md.Context()); err != nil {
		return nil, &ucs.OpError{TL: t.name, Dev: p.Device, Op: "open iface", Err: err}
	}
	return t.open(md, port, p)
}

// Supports implements ib.DeviceFilter.
func (t transport) Supports(dev *verbs.Context) error {
	if err := provider.RawSupported(dev); err != nil || t.needs == nil {
		return err
	}
	return t.needs(dev)
}

// PollerOf implements ib.CQPoller.
func (t transport) PollerOf(cq *verbs.CQ) (poll func(), err error) {
	q := &compQueue{}
	if err := q.open(cq); err != nil {
		return nil, err
	}
	return q.pollEmpty, nil
}

// Explicit implements ib.Explicit.
func (t transport) Explicit() bool { return t.explicit }
