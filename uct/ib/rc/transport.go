package rc

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Name is the name of the transport in uct.Resource.
const Name = "rc"

// Transport makes the transport for ib.New. defaults are used by ifaces that are
// opened without a Config.
func Transport(defaults Config) ib.Transport { return transport{defaults} }

type transport struct{ defaults Config }

func (transport) Name() string { return Name }

// OpenIface opens an iface. p.Config is nil, a Config or a *Config.
func (t transport) OpenIface(md *ib.MD, portNum uint8, p uct.IfaceParams) (uct.Iface, error) {
	cfg := t.defaults
	switch c := p.Config.(type) {
	case nil:
	case Config:
		cfg = c
	case *Config:
		cfg = *c
	default:
		return nil, fmt.Errorf("%w: rc configuration of type %T", uct.ErrInvalidParam, p.Config)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Dev: p.Device, Op: "open iface", Err: err}
	}
	it, err := open(md, portNum, p, cfg)
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Dev: p.Device, Op: "open iface", Err: err}
	}
	return it, nil
}

func open(md *ib.MD, portNum uint8, p uct.IfaceParams, cfg Config) (_ *Iface, err error) {
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Run())
		}
	}()
	if err = md.Hold(); err != nil {
		return nil, err
	}
	undo.Add(func() error { md.Drop(); return nil })
	port, err := md.OpenPort(portNum, cfg.IB)
	if err != nil {
		return nil, err
	}
	it := &Iface{md: md, port: port, cfg: fit(cfg, md.DeviceAttr()), onError: p.OnError}
	it.eps.init()
	for i := range it.recent {
		it.recent[i] = &it.eps.vacant
	}
	if err = it.openQueues(&undo); err != nil {
		return nil, err
	}
	if it.tx, err = md.NewPool(it.cfg.TxBuffers, int(it.cfg.SegSize)); err != nil {
		return nil, err
	}
	undo.Add(it.tx.Close)
	if it.words, err = md.NewPool(it.cfg.TxCQDepth, 8); err != nil {
		return nil, err
	}
	undo.Add(it.words.Close)
	it.rx, err = md.NewRecvQueue(it.srq, ib.RecvParams{
		Count: it.cfg.RxDepth, Payload: int(it.cfg.SegSize), Headroom: p.RxHeadroom,
	})
	if err != nil {
		return nil, err
	}
	undo.Add(it.rx.Close)
	if err = it.rx.Posted(); err != nil {
		return nil, err
	}
	it.prepare()
	it.fillAttr()
	md.Subscribe(it)
	it.undo = undo.Release()
	return it, nil
}

// fit lowers what the device cannot do.
func fit(c Config, dev verbs.DeviceAttr) Config {
	limit := func(v *int, n int) {
		if n > 0 {
			*v = min(*v, n)
		}
	}
	limit(&c.TxDepth, dev.MaxQPWR)
	limit(&c.TxMaxSGE, dev.MaxSGE)
	limit(&c.RxDepth, dev.MaxSRQWR)
	limit(&c.TxCQDepth, dev.MaxCQE-c.RxDepth)
	limit(&c.MaxRDAtomic, min(dev.MaxRDAtomic, dev.MaxInitRD))
	c.TxMaxInline = min(c.TxMaxInline, config.MemSize(dev.MaxInline))
	c.Moderation = min(c.Moderation, c.TxDepth/4) // 0: all are signaled
	c.FCWindow = min(c.FCWindow, c.RxDepth/2)
	return c
}

// openQueues makes the objects that EPs share.
func (it *Iface) openQueues(undo *cleanup.Stack) (err error) {
	ctx := it.md.Context()
	if it.channel, err = ctx.CreateCompChannel(); err != nil {
		return fmt.Errorf("create completion channel: %w", err)
	}
	undo.Add(it.channel.Close)
	if it.wake, err = ib.NewWake(it.channel, &it.attn); err != nil {
		return err
	}
	undo.Add(it.wake.Close)
	if it.td, err = ctx.AllocTD(verbs.TDInitAttr{}); err != nil {
		return fmt.Errorf("alloc thread domain: %w", err)
	}
	undo.Add(it.td.Close)
	it.cq, err = ctx.CreateCQ(verbs.CQInitAttr{
		Depth:          it.cfg.TxCQDepth + it.cfg.RxDepth,
		Channel:        it.channel,
		SingleThreaded: true,
	})
	if err != nil {
		return fmt.Errorf("create cq: %w", err)
	}
	undo.Add(it.cq.Close)
	it.srq, err = it.md.PD().CreateSRQ(verbs.SRQInitAttr{MaxWR: it.cfg.RxDepth, MaxSGE: 1, TD: it.td})
	if err != nil {
		return fmt.Errorf("create srq: %w", err)
	}
	undo.Add(it.srq.Close)
	it.cqFree = it.cfg.TxCQDepth
	return nil
}

// createQP makes the QP of an EP.
func (it *Iface) createQP() (*verbs.QP, error) {
	return it.md.PD().CreateQP(verbs.QPInitAttr{
		Type:   verbs.QPTypeRC,
		SendCQ: it.cq,
		RecvCQ: it.cq,
		SRQ:    it.srq,
		TD:     it.td,
		Cap: verbs.QPCap{
			MaxSendWR:  it.cfg.TxDepth,
			MaxSendSGE: it.cfg.TxMaxSGE,
			MaxInline:  int(it.cfg.TxMaxInline),
		},
	})
}
