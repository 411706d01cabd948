package dv

import (
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/internal/xrccore"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
)

// rcIface is an iface of rc_mlx5: the core with queues of its own. It implements
// rccore.Driver.
type rcIface struct {
	rccore.Iface
	cq       compQueue
	maxPoll  int // completions of one Progress
	recent   [256]*rcEP
	noEP     rcEP // an EP that no QPN matches
	putMaxBB uint // longest put that fits in one basic block, inline
	amMaxBB  int  // longest payload of a short message that does
	// How many more bytes than fit in one basic block go inline in several.
	putInlineExtra, amInlineExtra uint
	srq                           prm.RecvList
	reg                           *register
	postlist                      int // WQEs of an EP that a doorbell waits for

	// xrcs are queues of xrc_mlx5 that are not RC QPs, by the user index in their completions;
	// nil of rc_mlx5.
	xrcQueues []xrcQueue
	filter    xrccore.Filter // of their completions; nil: these are of the extension
	xrcWC     verbs.WC       // the one that is being handled
}

// rcEP is an EP of rc_mlx5: the core's, with its send queue.
type rcEP struct {
	rccore.EP
	sq sendQueue
	it *rcIface
}

var (
	_ rccore.Driver    = (*rcIface)(nil)
	_ rccore.CompQueue = (*compQueue)(nil)
)

// Ops implements uct.EP: short puts and messages are written here.
func (e *rcEP) Ops() *uct.Ops {
	ops := e.EP.Ops()
	ops.AM, ops.Put = e, e
	return ops
}

// noQPN is no QPN, which have 24 bits: not even invalidQPN.
const noQPN = 1<<32 - 1

// rcOverhead is what UCX declares for its rc_mlx5.
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

// WithDefaultInline returns the configuration with MaxInline as TX_MAX_INLINE if that is not set and SEG_SIZE permits it.
func (c RCConfig) WithDefaultInline() RCConfig {
	if c.TxMaxInline == 0 && (c.SegSize == 0 || c.SegSize >= MaxInline) {
		c.TxMaxInline = MaxInline
	}
	return c
}

// newRC makes an iface that is not open, and what the user gets.
func newRC(postlist int) (it *rcIface, self xrccore.BaseIface) {
	it = &rcIface{}
	it.clearRecent()
	if postlist > 1 {
		return it, listIface{it}
	}
	return it, it
}

// opened takes over what the core has found out.
func (it *rcIface) setLimits(postlist int) {
	it.maxPoll = it.Config().MaxPoll
	it.postlist = min(postlist, it.Config().TxDepth)
	it.limitInline()
}

// limitInline derives from MaxInline what goes inline.
func (it *rcIface) limitInline() {
	it.putMaxBB = uint(min(maxPutBB, it.MaxInline))
	it.amMaxBB = min(maxAMBB, it.MaxInline-amWordLen)
	it.putInlineExtra = uint(max(it.MaxInline-maxPutBB, 0))
	it.amInlineExtra = uint(max(it.MaxInline-amWordLen-maxAMBB, 0))
}

// Attach implements rccore.Driver.
func (it *rcIface) Attach(cq *verbs.CQ, srq *verbs.SRQ) (rccore.CompQueue, ib.RecvPoster, error) {
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
	raw, err := mlx5.RawQPOf(qp)
	if err != nil {
		return nil, nil, nil, err
	}
	e, outer := it.newEP()
	if err := e.sq.open(qp, raw, it.registerFor(raw.UAR)); err != nil {
		return nil, nil, nil, err
	}
	return outer, &e.EP, &e.sq, nil
}

// newEP makes an EP and what the user gets.
func (it *rcIface) newEP() (*rcEP, uct.EP) {
	if it.postlist > 1 {
		l := &listEP{rcEP{it: it}}
		return &l.rcEP, l
	}
	e := &rcEP{it: it}
	return e, e
}

// direct is the EP in what the user has; nil if that is nil.
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

// registerAt is the register of a QP: that of the iface, which is of the first QP.
// QPs outside a thread domain may have one each; then those of the others batch
// nothing.
func (it *rcIface) registerFor(u mlx5.RawUAR) *register {
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

// forgetAll makes every recent EP none.
func (it *rcIface) clearRecent() {
	it.noEP.QPN = noQPN
	for i := range it.recent {
		it.recent[i] = &it.noEP
	}
}

// Forget implements rccore.Driver.
func (it *rcIface) Forget(outer uct.EP) {
	e := rcEPOf(outer)
	it.cq.invalidateQPN(e.QPN)
	e.sq.reg.removeQueue(&e.sq)
	if slot := &it.recent[uint8(e.QPN)]; *slot == e {
		*slot = &it.noEP
	}
}
