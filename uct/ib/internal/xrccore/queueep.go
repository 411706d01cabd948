package xrccore

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Attach implements uct.QueueSender. A connection that is up is taken first; the first use of
// one makes its QP.
func (e *EP) Attach(number uint32) (uct.QueueConn, error) {
	if !e.Ready() {
		return nil, e.Err()
	}
	var free *conn
	for i := range e.conns {
		c := &e.conns[i]
		if c.attached {
			continue
		}
		if c.link == linkUp {
			free = c
			break
		}
		if free == nil || free.link == linkNone {
			free = c
		}
	}
	if free == nil {
		return nil, uct.ErrBusy
	}
	if err := free.open(); err != nil {
		return nil, err
	}
	free.attached, free.number = true, number
	return free, nil
}

// openDomain opens the domain of the EP, if it has none.
func (e *EP) openDomain() error {
	if e.domain != nil {
		return nil
	}
	d := e.it.spare
	if d == nil {
		var err error
		if d, err = openPrivate(e.it.MD()); err != nil {
			return err
		}
	}
	e.it.spare, e.domain = nil, &domain{d, 1}
	return nil
}

// accept connects the target of one of the peer's connections, and returns the answer, with
// QPN 0 if that does not go.
func (e *EP) accept(m message) message {
	answer := message{kind: kindAnswer, conn: m.conn}
	for len(e.targets) <= int(m.conn) {
		e.targets = append(e.targets, nil)
	}
	t, err := e.target(int(m.conn))
	if err == nil {
		err = e.connectTarget(t, m)
	}
	if err != nil {
		logger.Info("target not connected", "device", e.it.Port().Name, "reason", err)
		return answer
	}
	answer.qpn = t.Number()
	return answer
}

// target is the one for a connection of the peer, in RESET.
func (e *EP) target(i int) (*verbs.QP, error) {
	if t := e.targets[i]; t != nil {
		return t, t.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState)
	}
	if err := e.openDomain(); err != nil {
		return nil, err
	}
	t, err := e.domain.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
	if err == nil {
		e.targets[i] = t
	}
	return t, err
}

// connectTarget takes a target to RTR: it sends nothing.
func (e *EP) connectTarget(t *verbs.QP, m message) error {
	port, cfg := e.it.Port(), e.it.Config()
	err := t.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: port.Num, AccessFlags: verbs.AccessLocalWrite},
		verbs.QPMaskState|verbs.QPMaskPKeyIndex|verbs.QPMaskPort|verbs.QPMaskAccessFlags)
	if err != nil {
		return err
	}
	return t.Modify(verbs.QPAttr{
		State:       verbs.QPStateRTR,
		AH:          port.AH(e.peer),
		PathMTU:     min(e.mtu, m.mtu),
		DestQPN:     m.qpn,
		RQPSN:       m.psn,
		MaxDestRD:   1,
		MinRNRTimer: ib.RNRTimerCode(cfg.RNRTimeout),
	}, verbs.QPMaskState|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|
		verbs.QPMaskRQPSN|verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer)
}

// status is what becomes of a send that the device ended: that a queue is not there, or is
// stopped, is not a fault.
func status(wc *verbs.WC) ucs.Status {
	switch wc.Status {
	case verbs.WCRemInvReqErr, verbs.WCWRFlushErr:
		return ucs.StatusCanceled
	}
	return ib.CompletionStatus(wc)
}

// NewQueue implements uct.Queuer.
func (e *EP) NewQueue(depth int) (uct.Queue, error) {
	first, spare := e.domain == nil, e.it.spare
	q, err := e.newQueue(depth)
	if err == nil {
		return q, nil
	}
	if first && e.domain != nil { // as before
		if e.it.spare = spare; spare == nil {
			err = errors.Join(err, e.domain.release())
		}
		e.domain = nil
	}
	return nil, e.it.opError("new queue", err)
}

func (e *EP) newQueue(depth int) (*recvQueue, error) {
	it := e.it
	switch {
	case e.closed:
		return nil, uct.ErrClosed
	case it.lost:
		return nil, rccore.ErrCQLost
	case depth < 1 || depth > it.attr.Queue.MaxDepth:
		return nil, fmt.Errorf("%w: depth %d not in 1..%d", uct.ErrInvalidParam, depth, it.attr.Queue.MaxDepth)
	case it.queues.live == it.attr.Queue.MaxQueues:
		return nil, fmt.Errorf("%w: %d queues are open", uct.ErrNoMemory, it.queues.live)
	case depth > it.cqFree:
		return nil, fmt.Errorf("%w: QUEUE_CQ_LEN of %d is used up", uct.ErrNoMemory, it.cfg.QueueCQDepth)
	}
	if err := e.openDomain(); err != nil {
		return nil, err
	}
	srq, err := it.MD().PD().CreateSRQ(verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, XRCD: e.domain.XRCD, CQ: it.VerbsCQ(),
		MaxWR: depth, MaxSGE: it.attr.Queue.MaxRecvIOV})
	if err != nil {
		return nil, fmt.Errorf("create srq: %w", err)
	}
	queue, err := it.poster.OpenRecv(srq)
	if err != nil {
		return nil, errors.Join(err, srq.Close())
	}
	it.cqFree -= depth
	e.domain.users++
	q := &recvQueue{it: it, domain: e.domain, srq: srq, queue: queue, number: srq.Number(), slots: make([]recvSlot, depth), free: make([]uint32, depth)}
	for i := range q.free {
		q.free[i] = uint32(depth - 1 - i)
	}
	q.index = it.queues.add(q)
	return q, nil
}
