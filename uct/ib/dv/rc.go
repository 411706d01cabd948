package dv

import (
	"time"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// rcIface is an iface of rc_mlx5: the core with queues of its own. It implements
// rccore.Driver.
type rcIface struct {
	rccore.Iface
	cq     compQueue
	batch  int // completions of one Progress
	recent [256]*rcEP
	none   rcEP // an EP that no QPN matches
	putMax uint // longest put that fits in one basic block, inline
	amMax  int  // longest payload of a short message that does
	srq    sharedQueue
	reg    *register
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
	_ uct.AMSender     = (*rcEP)(nil)
	_ uct.Putter       = (*rcEP)(nil)
)

// rcOverhead is what UCX declares for its rc_mlx5.
const rcOverhead = 40 * time.Nanosecond

func openRC(md *ib.MD, port uint8, p uct.IfaceParams, cfg RCConfig) (uct.Iface, error) {
	it := &rcIface{}
	it.none.QPN = nobody
	for i := range it.recent {
		it.recent[i] = &it.none
	}
	err := rccore.Open(&it.Iface, md, rccore.Params{
		Name: RCName, Port: port, Config: cfg, Overhead: rcOverhead, Driver: it, Self: it,
	}, p)
	if err != nil {
		return nil, err
	}
	it.batch = it.Config().MaxPoll
	it.putMax = uint(min(maxPutBB, it.MaxInline))
	it.amMax = min(maxAMBB, it.MaxInline-amWordLen)
	return it, nil
}

// Attach implements rccore.Driver.
func (it *rcIface) Attach(cq *verbs.CQ, srq *verbs.SRQ) (rccore.CompQueue, ib.RecvPoster, error) {
	if err := it.cq.open(cq); err != nil {
		return nil, nil, err
	}
	if err := it.srq.open(srq); err != nil {
		return nil, nil, err
	}
	return &it.cq, &it.srq, nil
}

// MakeEP implements rccore.Driver.
func (it *rcIface) MakeEP(qp *verbs.QP) (uct.EP, *rccore.EP, rccore.SendQueue, error) {
	raw, err := mlx5.RawQPOf(qp)
	if err != nil {
		return nil, nil, nil, err
	}
	if it.reg == nil || !it.reg.is(raw.UAR) {
		it.reg = newRegister(raw.UAR)
	}
	e := &rcEP{it: it}
	e.sq.open(qp, raw, it.reg)
	return e, &e.EP, &e.sq, nil
}

// Forget implements rccore.Driver.
func (it *rcIface) Forget(outer uct.EP) {
	e := outer.(*rcEP)
	it.cq.disown(e.QPN)
	it.reg.forget(&e.sq)
	if slot := &it.recent[uint8(e.QPN)]; *slot == e {
		*slot = &it.none
	}
}
