package dv

import (
	"time"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/internal/xrccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// rcIface is an iface of rc_mlx5: the core with mlx5 queues. It implements rccore.Driver.
type rcIface struct {
	rccore.Iface
	cq       compQueue
	maxPoll  int // maximum number of completions of one Progress
	recent   [256]*rcEP
	noEP     rcEP // an EP with a QPN that matches no QP
	putMaxBB uint // maximum length of an inline put of one basic block
	amMaxBB  int  // maximum payload of an inline message of one basic block
	// Maximum number of bytes beyond that for operations of several basic blocks.
	putInlineExtra, amInlineExtra uint
	srq                           prm.RecvList
	reg                           *register
	postlist                      int // number of WQEs of an EP for one doorbell

	// xrcQueues contains the queues of xrc_mlx5 that are not RC QPs, by user index; nil with
	// rc_mlx5.
	xrcQueues []xrcQueue
	filter    xrccore.Filter // converts their completions; nil: they need no conversion
	xrcWC     verbs.WC       // the completion in progress
}

// rcEP is an EP of rc_mlx5: the core's EP with its send queue.
type rcEP struct {
	rccore.EP
	sq sendQueue
	it *rcIface
}

var (
	_ rccore.Driver    = (*rcIface)(nil)
	_ rccore.CompQueue = (*compQueue)(nil)
)

// Ops implements uct.EP. This package implements short puts and messages.
func (e *rcEP) Ops() *uct.Ops {
	ops := e.EP.Ops()
	ops.AM, ops.Put = e, e
	return ops
}

// noQPN differs from all QPNs, which have 24 bits, and from invalidQPN.
const noQPN = 1<<32 - 1

// rcOverhead is the overhead that UCX declares for its rc_mlx5.
const rcOverhead = 40 * time.Nanosecond

func openRC(md *ib.MD, port uint8, p uct.IfaceParams, cfg RCConfig) (uct.Iface, error) {
	cfg, p.Config = base.SplitConfig(p.Config, cfg)
	cfg.Config, p.Config = base.SplitConfig(p.Config, cfg.Config)
	if err := cfg.Validate(); err != nil {
		return nil, &ucs.OpError{TL: RCName, Dev: p.Device, Op: "open iface", Err: err}
	}
	cfg = cfg.WithDefaultInline()
	it, self := newRC(cfg.TxPostlist)
	err := rccore.Open(&it.Iface, md, rccore.Params{
		Name: RCName, Port: port, Config: cfg.Config, Overhead: rcOverhead, Driver: it, Self: self,
	}, p)
	if err != nil {
		return nil, err
	}
	it.setLimits(cfg.TxPostlist)
	return self, nil
}

// WithDefaultInline returns the configuration with TX_MAX_INLINE set to MaxInline, if it is not set and
// SEG_SIZE permits that.
func (c RCConfig) WithDefaultInline() RCConfig {
	if c.TxMaxInline == 0 && (c.SegSize == 0 || c.SegSize >= MaxInline) {
		c.TxMaxInline = MaxInline
	}
	return c
}

// newRC makes an iface that is not open. self is the uct.Iface for the user.
func newRC(postlist int) (it *rcIface, self xrccore.BaseIface) {
	it = &rcIface{}
	it.clearRecent()
	if postlist > 1 {
		return it, listIface{it}
	}
	return it, it
}

// setLimits derives limits from the configuration after the core has opened the iface.
func (it *rcIface) setLimits(postlist int) {
	it.maxPoll = it.Config().MaxPoll
	it.postlist = min(postlist, it.Config().TxDepth)
	it.limitInline()
}

// limitInline derives the limits of inline operations from MaxInline.
func (it *rcIface) limitInline() {
	it.putMaxBB = uint(min(maxPutBB, it.MaxInline))
	it.amMaxBB = min(maxAMBB, it.MaxInline-amWordLen)
	it.putInlineExtra = uint(max(it.MaxInline-maxPutBB, 0))
	it.amInlineExtra = uint(max(it.MaxInline-amWordLen-maxAMBB, 0))
}

// Attach implements rccore.Driver.
func (it *rcIface) Attach(cq *verbs.CQ, srq *verbs.SRQ) (rccore.CompQueue, buffer.RecvPoster, error) {
	if err := it.cq.open(cq); err != nil {
		return nil, nil, err
	}
	index, err := openList(&it.srq, srq, true)
	if err != nil {
		return nil, nil, err
	}
	if srq.Type() == verbs.SRQTypeXRC {
		it.addXRC(index, &xrcRecv{&it.srq, index})
	}
	return &it.cq, &it.srq, nil
}

// MakeEP implements rccore.Driver.
func (it *rcIface) MakeEP(l rccore.Link) (uct.EP, *rccore.EP, rccore.SendQueue, error) {
	qp := l.(*rccore.QPLink).QP
	raw, err := provider.RawQPOf(qp)
	if err != nil {
		return nil, nil, nil, err
	}
	e, outer := it.newEP()
	if err := e.sq.open(qp, raw, it.registerFor(raw.UAR)); err != nil {
		return nil, nil, nil, err
	}
	return outer, &e.EP, &e.sq, nil
}

// newEP makes an EP. The second result is the uct.EP for the user.
func (it *rcIface) newEP() (*rcEP, uct.EP) {
	if it.postlist > 1 {
		l := &listEP{rcEP{it: it}}
		return &l.rcEP, l
	}
	e := &rcEP{it: it}
	return e, e
}

// rcEPOf returns the rcEP of the uct.EP that the user has; nil if that is nil.
func rcEPOf(outer uct.EP) *rcEP {
	switch e := outer.(type) {
	case *rcEP:
		return e
	case *listEP:
		return &e.rcEP
	case *xrccore.EP:
		return rcEPOf(e.Base())
	}
	return nil
}

// registerFor returns the register of a QP. The iface uses the register of its first QP. QPs
// outside a thread domain may have different registers; the posts of those with another one are not
// batched.
func (it *rcIface) registerFor(u provider.RawUAR) *register {
	if it.reg == nil {
		it.reg = newRegister(u)
		if it.postlist > 1 {
			it.reg.setPostlist(it.postlist, &it.cq.CompRing)
		}
	}
	if !it.reg.matches(u) {
		return newRegister(u)
	}
	return it.reg
}

// clearRecent resets the cache of recent EPs.
func (it *rcIface) clearRecent() {
	it.noEP.QPN = noQPN
	for i := range it.recent {
		it.recent[i] = &it.noEP
	}
}

// RemoveEP implements rccore.Driver.
func (it *rcIface) RemoveEP(outer uct.EP) {
	e := rcEPOf(outer)
	it.cq.invalidateQPN(e.QPN)
	e.sq.reg.removeQueue(&e.sq)
	if slot := &it.recent[uint8(e.QPN)]; *slot == e {
		*slot = &it.noEP
	}
}
