package rccore

import (
	"errors"
	"fmt"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/internal/wake"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Params are the parameters of Open.
type Params struct {
	// Name is the name of the transport in uct.Resource.
	Name string
	Port uint8
	// Config is the configuration of ifaces that are opened without one.
	Config Config
	// Overhead is the declared cost of a post.
	Overhead time.Duration
	Driver   Driver
	// Extension is nil, or has its own queues on the completion queue of the iface. ExtensionCQ is
	// the maximum number of their completions.
	Extension   Extension
	ExtensionCQ int
	// Links is nil, or connects EPs by other links than a QP each.
	Links Links
	// Self is the Iface of the user: the one to open, or the type that embeds it.
	Self uct.Iface
}

// Open opens it on a port of md. p.Config is nil, a Config or a *Config. After an error it has closed
// everything that it opened.
func Open(it *Iface, md *ib.MD, own Params, p uct.IfaceParams) error {
	cfg, err := configFrom(own.Config, md, p)
	if err == nil {
		it.name, it.self, it.driver, it.cost = own.Name, own.Self, own.Driver, own.Overhead
		it.md, it.onError, it.cfg = md, p.OnError, limitToDevice(cfg, md.DeviceAttr(), own.ExtensionCQ)
		it.ext, it.extCQ, it.links = own.Extension, own.ExtensionCQ, own.Links
		if it.links != nil {
			it.cfg.Moderation = 0
			it.cfg.FCWindow = min(it.cfg.FCWindow, it.links.MaxCredits())
		}
		err = it.openOn(own.Port, p)
	}
	if err != nil {
		return &ucs.OpError{TL: own.Name, Dev: p.Device, Op: "open iface", Err: err}
	}
	return nil
}

// configFrom returns the configuration in p, or other if p has none, with defaults.
func configFrom(other Config, md *ib.MD, p uct.IfaceParams) (Config, error) {
	cfg, err := base.PickConfig(p.Config, other)
	if err != nil {
		return cfg, err
	}
	cfg.IB = cfg.IB.With(md.Config().Endpoints)
	return cfg.withDefaults()
}

// openOn opens the port and creates the queues and buffers of the iface.
func (it *Iface) openOn(portNum uint8, p uct.IfaceParams) (err error) {
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Run())
		}
	}()
	md := it.md
	if err = md.Hold(); err != nil {
		return err
	}
	undo.Add(func() error { md.Drop(); return nil })
	if it.port, err = ibport.Open(md, portNum, it.cfg.IB); err != nil {
		return err
	}
	it.eps.init()
	for i := range it.recent {
		it.recent[i] = &it.eps.vacant
	}
	if err = it.openQueues(&undo); err != nil {
		return err
	}
	if err = it.openBuffers(&undo); err != nil {
		return err
	}
	it.initWRs()
	it.fillAttr()
	md.Subscribe(it)
	it.undo = undo.Release()
	return nil
}

// openBuffers creates the pools and fills the receive queue.
func (it *Iface) openBuffers(undo *cleanup.Stack) (err error) {
	md := it.md
	var poster buffer.RecvPoster
	if it.cq, poster, err = it.driver.Attach(it.verbsCQ, it.srq); err != nil {
		return err
	}
	it.poller, _ = it.cq.(Poller)
	if it.watch = it.cq.Watch(); it.watch == nil {
		it.watch = neverIdle()
	}
	if it.tx, err = buffer.NewPool(md, it.cfg.TxBuffers, int(it.cfg.SegSize)); err != nil {
		return err
	}
	undo.Add(it.tx.Close)
	if it.slots, err = buffer.NewPool(md, it.cfg.TxCQDepth+epSlots+1, slotLen); err != nil {
		return err
	}
	undo.Add(it.slots.Close)
	it.rx, err = buffer.NewRecvQueue(md, poster, buffer.RecvParams{
		Count: it.cfg.RxDepth, Payload: int(it.cfg.SegSize),
	})
	if err != nil {
		return err
	}
	undo.Add(it.rx.Close)
	if it.links != nil {
		undo.Add(func() error { return guard.AwaitUse(it.srq.Stop) }) // peers can reach it while initiators exist
	}
	return it.rx.Posted()
}

// limitToDevice reduces the configuration to the limits of the device.
func limitToDevice(c Config, dev verbs.DeviceAttr, extensionCQ int) Config {
	limit := func(v *int, n int) {
		if n > 0 {
			*v = min(*v, n)
		}
	}
	limit(&c.TxDepth, dev.MaxQPWR)
	limit(&c.TxMaxSGE, dev.MaxSGE)
	limit(&c.RxDepth, dev.MaxSRQWR)
	limit(&c.TxCQDepth, dev.MaxCQE-c.RxDepth-c.MaxPoll-extensionCQ)
	limit(&c.MaxRDAtomic, min(dev.MaxRDAtomic, dev.MaxInitRD))
	c.TxMaxInline = min(c.TxMaxInline, config.MemSize(dev.MaxInline))
	c.Moderation = min(c.Moderation, c.TxDepth/4) // 0: all work requests are signaled
	c.FCWindow = min(c.FCWindow, c.RxDepth/2)
	return c
}

// openQueues creates the queues that all EPs share.
func (it *Iface) openQueues(undo *cleanup.Stack) (err error) {
	if it.wake, err = wake.Open(it.md.Context(), &it.Attn, undo.Add); err != nil {
		return err
	}
	if it.sharing, err = it.md.OpenSharing(it.name, it.port.Num, it.cfg.IB.Endpoints, undo.Add); err != nil {
		return err
	}
	// A Progress may free its CQ entries only at its end.
	depth := it.cfg.TxCQDepth + it.cfg.RxDepth + it.cfg.MaxPoll + it.extCQ
	if it.verbsCQ, err = it.sharing.CreateCQ(verbs.CQInitAttr{Depth: depth, Channel: it.wake.Channel()}, undo.Add); err != nil {
		return err
	}
	attr := verbs.SRQInitAttr{MaxWR: it.cfg.RxDepth, MaxSGE: 1, TD: it.sharing.TD()}
	if it.links != nil {
		it.links.RecvQueue(&attr, it.verbsCQ)
	}
	it.srq, err = it.md.PD().CreateSRQ(attr)
	if err != nil {
		return fmt.Errorf("create srq: %w", err)
	}
	undo.Add(it.srq.Close)
	it.cqFree = it.cfg.TxCQDepth
	return nil
}
