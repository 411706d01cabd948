package dv

import (
	"time"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/udcore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// udOverhead is the overhead that UCX declares for its ud_mlx5.
const udOverhead = 80 * time.Nanosecond

// udQueues contains the QP of a ud_mlx5 iface and its CQ.
type udQueues struct {
	compQueue
	send sendQueue
	recv prm.RecvRing
}

var (
	_ udcore.CompQueue  = (*udQueues)(nil)
	_ udcore.SendQueue  = (*sendQueue)(nil)
	_ buffer.RecvPoster = (*prm.RecvRing)(nil)
)

// udIface is an iface of ud_mlx5: the core with mlx5 queues.
type udIface struct {
	udcore.Iface
	q udQueues
}

func openUD(md *ib.MD, port uint8, p uct.IfaceParams, cfg UDConfig) (uct.Iface, error) {
	cfg, p.Config = base.SplitConfig(p.Config, cfg)
	if err := cfg.Validate(); err != nil {
		return nil, &ucs.OpError{TL: UDName, Dev: p.Device, Op: "open iface", Err: err}
	}
	it := &udIface{}
	self := uct.Iface(it)
	if cfg.TxPostlist > 1 {
		self = udList{it}
	}
	err := udcore.Open(&it.Iface, md, udcore.Params{
		Name: UDName, Port: port, Config: cfg.Config, Overhead: udOverhead, Driver: it.q.attach, Self: self,
	}, p)
	if err != nil {
		return nil, err
	}
	if cfg.TxPostlist > 1 {
		it.q.send.reg.setPostlist(cfg.TxPostlist, nil)
	}
	return self, nil
}

// Progress implements uct.Iface. All its posts share one doorbell: acknowledgements, requests that
// had found the queue full, retransmissions, and posts of handlers.
func (it *udIface) Progress() int {
	r := it.q.send.reg
	r.beginBatch()
	n := it.Iface.Progress()
	r.endBatch()
	return n
}

// attach is a udcore.Driver.
func (q *udQueues) attach(qp *verbs.QP, cq *verbs.CQ) (udcore.SendQueue, buffer.RecvPoster, udcore.CompQueue, error) {
	raw, err := provider.RawQPOf(qp)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := q.open(cq); err != nil {
		return nil, nil, nil, err
	}
	if err := openRing(&q.recv, raw); err != nil {
		return nil, nil, nil, err
	}
	if err := q.send.open(qp, raw, newRegister(raw.UAR)); err != nil {
		return nil, nil, nil, err
	}
	return &q.send, &q.recv, q, nil
}

// Poll has the contract of verbs.CQ.Poll.
func (q *udQueues) Poll(wc []verbs.WC) int {
	if race.Enabled {
		if !q.guard.EnterPoll(q.cqn) {
			return 0
		}
		defer q.guard.Leave()
	}
	if q.Idle() {
		return 0
	}
	q.Drive()
	n := 0
	for n < len(wc) {
		s, t := q.Peek()
		if !q.Owned(t) {
			q.Wait(s, t)
			return q.endPoll(n)
		}
		q.Take()
		if q.parse(s, t, &wc[n]) {
			n++
		}
	}
	q.LookAgain()
	return q.endPoll(n)
}

// endPoll ends a poll that has found n completions.
func (q *udQueues) endPoll(n int) int {
	q.Give()
	if q.overrun.Load() {
		q.LookAgain()
		if n == 0 {
			return -1
		}
	}
	return n
}

// parse converts an entry to a completion; false for an invalid opcode.
func (q *udQueues) parse(s *prm.CQESlot, t prm.Tail, wc *verbs.WC) bool {
	*wc = verbs.WC{QPN: s.QPN()}
	switch t.Opcode() {
	case prm.CQEReq:
		wc.ID = *q.send.id(uint32(t.WQECounter()))
	case prm.CQEReqErr:
		wc.ID = *q.send.id(uint32(t.WQECounter()))
		setError(s, wc)
	case prm.CQERespSend, prm.CQERespSendImm:
		wc.ID, _ = q.recv.Take()
		wc.ByteLen = s.ByteCount()
		_, _, wc.SrcQP = s.RemoteQP()
	case prm.CQERespErr:
		wc.ID, _ = q.recv.Take()
		setError(s, wc)
	default:
		return false
	}
	return true
}
