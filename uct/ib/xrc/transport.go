package xrc

import (
	"errors"
	"fmt"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Name is the name of the transport in uct.Resource.
const Name = "xrc"

// postOverhead is a little above that of rc, which does the same with fewer QPs, so that
// who has no use for queues takes rc.
const postOverhead = 80 * time.Nanosecond

// Transport makes the transport for ib.New. defaults are used by ifaces that are
// opened without a Config.
func Transport(defaults Config) ib.Transport { return transport{defaults} }

type transport struct{ defaults Config }

var (
	_ ib.DeviceFilter = transport{}
	_ ib.Explicit     = transport{}
)

// Explicit implements ib.Explicit: rc is for who has no use for queues.
func (transport) Explicit() bool { return true }

// Name implements ib.Transport.
func (transport) Name() string { return Name }

// Supports implements ib.DeviceFilter.
func (transport) Supports(dev *verbs.Context) error {
	if !dev.HasXRC() {
		return fmt.Errorf("no XRC: %w", ucs.ErrUnsupported)
	}
	return nil
}

// OpenIface implements ib.Transport. p.Config is nil, a Config or a *Config.
func (t transport) OpenIface(md *ib.MD, port uint8, p uct.IfaceParams) (uct.Iface, error) {
	cfg := t.defaults
	switch c := p.Config.(type) {
	case Config:
		cfg, p.Config = c, nil
	case *Config:
		cfg, p.Config = *c, nil
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Dev: p.Device, Op: "open iface", Err: err}
	}
	it := &Iface{cfg: cfg, cqFree: cfg.QueueCQDepth}
	own := rccore.Params{
		Name: Name, Port: port, Config: cfg.Config, Overhead: postOverhead, Driver: driver{it: it}, Self: it,
		Extension: it, ExtensionCQ: cfg.QueueCQDepth,
	}
	if err := it.openDomains(md); err != nil {
		return nil, &ucs.OpError{TL: Name, Dev: p.Device, Op: "open iface", Err: err}
	}
	if it.node != nil {
		own.Links = it.node
	}
	if err := rccore.Open(&it.Iface, md, own, p); err != nil {
		return nil, errors.Join(err, it.closeDomains())
	}
	it.openQueues()
	return it, nil
}

// driver is that of verbs, with EPs of this package.
type driver struct {
	rccore.Verbs
	it *Iface
}

// Attach implements rccore.Driver.
func (d driver) Attach(cq *verbs.CQ, srq *verbs.SRQ) (rccore.CompQueue, ib.RecvPoster, error) {
	if d.it.node == nil {
		return d.Verbs.Attach(cq, srq)
	}
	return &completions{cq.Provider(), d.it.node}, srq.Provider(), nil
}

// MakeEP implements rccore.Driver.
func (d driver) MakeEP(l rccore.Link) (uct.EP, *rccore.EP, rccore.SendQueue, error) {
	e := &EP{it: d.it}
	e.conns = make([]conn, d.it.cfg.QueueConns)
	for i := range e.conns {
		c := &e.conns[i]
		c.e, c.index = e, uint8(i)
	}
	d.it.eps = append(d.it.eps, e)
	if p, ok := l.(*path); ok {
		e.path, p.ep, p.e = p, e, &e.EP
		return e, &e.EP, p, nil
	}
	return e, &e.EP, l.(*rccore.QPLink).QP.Provider(), nil
}
