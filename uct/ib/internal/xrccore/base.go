package xrccore

import (
	"errors"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Base is the reliable-connected transport to which this package adds receive queues: how it posts
// and polls.
type Base struct {
	// Core is the Iface of rccore that Iface embeds or is. Open opens it.
	Core  *rccore.Iface
	Iface BaseIface
	// Driver creates the EPs with an RC QP.
	Driver rccore.Driver
	Poster Poster
}

// BaseIface is an iface of the base. Its Progress polls the completion queue that all share.
type BaseIface interface {
	uct.Iface
	uct.Waker
}

// overVerbs returns the base that posts and polls by package verbs.
func overVerbs() Base {
	core := new(rccore.Iface)
	return Base{Core: core, Iface: core, Driver: rccore.Verbs{}, Poster: verbsPoster{}}
}

// Params are the parameters of Open.
type Params struct {
	// Name is the name of the transport in uct.Resource.
	Name   string
	Config Config
	// Overhead is the declared cost of a post.
	Overhead time.Duration
	Base     Base
}

// Open opens an iface on a port of md. p.Config is a configuration of this package; Open passes the other fields of p
// to rccore.Open. After an error it has closed everything that it opened.
func Open(md *ib.MD, port uint8, own Params, p uct.IfaceParams) (*Iface, error) {
	cfg, err := own.Config.withDefaults()
	if err != nil {
		return nil, &ucs.OpError{TL: own.Name, Dev: p.Device, Op: "open iface", Err: err}
	}
	b := &own.Base
	it := &Iface{base: b.Iface, ifaceCore: ifaceCore{Iface: b.Core, poster: b.Poster, name: own.Name, cfg: cfg},
		queueSet: queueSet{cqFree: cfg.QueueCQDepth}}
	core := rccore.Params{
		Name: own.Name, Port: port, Config: cfg.Config, Overhead: own.Overhead, Driver: driver{b.Driver, it}, Self: it,
		Extension: it, ExtensionCQ: cfg.QueueCQDepth,
	}
	if err := it.openDomains(md); err != nil {
		return nil, &ucs.OpError{TL: own.Name, Dev: p.Device, Op: "open iface", Err: err}
	}
	if it.node != nil {
		core.Links = it.node
	}
	if err := rccore.Open(b.Core, md, core, p); err != nil {
		return nil, errors.Join(err, it.closeDomains())
	}
	it.openQueues(own.Overhead)
	return it, nil
}

// driver is the Driver of the base, for EPs of this package.
type driver struct {
	rccore.Driver
	it *Iface
}

// Attach implements rccore.Driver.
func (d driver) Attach(cq *verbs.CQ, srq *verbs.SRQ) (rccore.CompQueue, buffer.RecvPoster, error) {
	queue, poster, err := d.Driver.Attach(cq, srq)
	if err == nil && d.it.node != nil {
		queue = d.it.poster.Filter(queue, d.it.node)
	}
	return queue, poster, err
}

// MakeEP implements rccore.Driver.
func (d driver) MakeEP(l rccore.Link) (_ uct.EP, _ *rccore.EP, send rccore.SendQueue, err error) {
	e := &EP{it: d.it}
	if p, ok := l.(*path); ok {
		e.EP = new(rccore.EP)
		e.base, e.path, p.e, p.task, send = e.EP, p, e.EP, &e.task, p
	} else if e.base, e.EP, send, err = d.Driver.MakeEP(l); err != nil {
		return nil, nil, nil, err
	}
	e.task.run = e.work
	e.open(&d.it.queueSet, e.EP, &e.task)
	d.it.eps = append(d.it.eps, e)
	return e, e.EP, send, nil
}

// RemoveEP implements rccore.Driver.
func (d driver) RemoveEP(outer uct.EP) {
	if e := outer.(*EP); e.path == nil {
		d.Driver.RemoveEP(e.base)
	}
}
