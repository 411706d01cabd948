package dv

import (
	"time"

	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/udcore"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// udOverhead is what UCX declares for its ud_mlx5.
const udOverhead = 80 * time.Nanosecond

// udQueues is the QP of a ud_mlx5 iface with its CQ.
type udQueues struct {
	compQueue
	send sendQueue
	recv recvQueue
}

var (
	_ udcore.CompQueue = (*udQueues)(nil)
	_ udcore.SendQueue = (*sendQueue)(nil)
	_ ib.RecvPoster    = (*recvQueue)(nil)
)

// udIface is an iface of ud_mlx5: the core with queues of its own.
type udIface struct {
	udcore.Iface
	q udQueues
}

func openUD(md *ib.MD, port uint8, p uct.IfaceParams, cfg UDConfig) (uct.Iface, error) {
	cfg, p.Config = pick(cfg, p.Config)
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
	if p.PollIdleTx {
		it.q.pollAlways()
	}
	if cfg.TxPostlist > 1 {
		it.q.send.reg.list(cfg.TxPostlist, nil)
	}
	return self, nil
}

// Progress implements uct.Iface. One doorbell serves what it posts: acknowledgements,
// what had found the queue full, what is sent again, and what handlers post.
func (it *udIface) Progress() int {
	r := it.q.send.reg
	r.hold()
	n := it.Iface.Progress()
	r.release()
	return n
}

// attach is the udcore.Driver.
func (q *udQueues) attach(qp *verbs.QP, cq *verbs.CQ) (udcore.SendQueue, ib.RecvPoster, udcore.CompQueue, error) {
	raw, err := mlx5.RawQPOf(qp)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := q.open(cq); err != nil {
		return nil, nil, nil, err
	}
	if err := q.recv.open(raw); err != nil {
		return nil, nil, nil, err
	}
	q.send.open(qp, raw, newRegister(raw.UAR))
	return &q.send, &q.recv, q, nil
}

// Poll is that of verbs.CQ.
func (q *udQueues) Poll(wc []verbs.WC) int {
	if race.Enabled {
		if !q.guard.EnterPoll(q.cqn) {
			return 0
		}
		defer q.guard.Leave()
	}
	if q.watch.Idle() {
		return 0
	}
	q.drive()
	n := 0
	for n < len(wc) {
		s, t := q.peek()
		if !q.owned(t) {
			q.wait(s, t)
			return q.polled(n)
		}
		q.take()
		if q.parse(s, t, &wc[n]) {
			n++
		}
	}
	q.lookAgain()
	return q.polled(n)
}

// polled ends a poll that has found n completions.
func (q *udQueues) polled(n int) int {
	q.give()
	if q.overrun.Load() {
		q.lookAgain()
		if n == 0 {
			return -1
		}
	}
	return n
}

// parse turns an entry into a completion; false for nonsense.
func (q *udQueues) parse(s *mlx5.CQESlot, t mlx5.Tail, wc *verbs.WC) bool {
	*wc = verbs.WC{QPN: s.QPN()}
	switch t.Opcode() {
	case mlx5.CQEReq:
		wc.ID = *q.send.id(uint32(t.WQECounter()))
	case mlx5.CQEReqErr:
		wc.ID = *q.send.id(uint32(t.WQECounter()))
		failure(s, wc)
	case mlx5.CQERespSend, mlx5.CQERespSendImm:
		wc.ID = q.recv.take()
		wc.ByteLen = s.ByteCount()
		_, _, wc.SrcQP = s.RemoteQP()
	case mlx5.CQERespErr:
		wc.ID = q.recv.take()
		failure(s, wc)
	default:
		return false
	}
	return true
}

// recvQueue posts receives to the receive queue of a QP: a ring that is consumed in
// order.
type recvQueue struct {
	view mlx5.RQView
	dbr  mlx5.DBRec
	ids  []uint64 // by entry
	head uint32   // receives posted
	tail uint32   // receives completed
}

func (q *recvQueue) open(raw mlx5.RawQP) (err error) {
	if q.view, err = entries(raw.RQ); err != nil {
		return err
	}
	q.dbr, q.ids = raw.DBRec, make([]uint64, raw.RQ.Count)
	return nil
}

// PostRecv is that of verbs.QP.
func (q *recvQueue) PostRecv(wr []verbs.RecvWR) (n int, err error) {
	for n < len(wr) {
		if q.head-q.tail == q.view.Count() {
			err = ucs.ErrNoResource
			break
		}
		e := q.view.Entry(q.head)
		if err = checkReceive(&wr[n], len(e)); err != nil {
			break
		}
		mlx5.EncodeRecv(e, wr[n].SGList)
		q.ids[q.head&(q.view.Count()-1)] = wr[n].ID
		q.head++
		n++
	}
	if n > 0 {
		q.dbr.StoreRecv(uint16(q.head))
	}
	return n, err
}

// take retires the oldest receive and returns its ID.
func (q *recvQueue) take() uint64 {
	id := q.ids[q.tail&(q.view.Count()-1)]
	q.tail++
	return id
}
