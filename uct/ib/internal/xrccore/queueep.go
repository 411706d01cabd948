package xrccore

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// queueEP is the part of an EP for queues: connections to queues of the peer, and targets for the
// connections of the peer to queues of this side.
type queueEP struct {
	*rccore.EP
	it      *queueSet
	task    *task // of the EP
	conns   []conn
	targets []*verbs.QP // by the index of the connection at the peer
	domain  *domain     // for the queues and the targets of the peer; nil until needed
	replies []message   // not yet sent
	peer    ibport.DeviceAddr
	mtu     verbs.MTU // MTU of the path: the minimum of both sides
	closed  bool
}

// open initializes the connections, without QPs.
func (e *queueEP) open(it *queueSet, ep *rccore.EP, t *task) {
	e.it, e.EP, e.task = it, ep, t
	e.conns = make([]conn, it.cfg.QueueConns)
	for i := range e.conns {
		c := &e.conns[i]
		c.e, c.index = e, uint8(i)
	}
}

// connect sets the device address and the MTU for connections to queues of the peer.
func (e *queueEP) connect(deviceAddr []byte, mtu verbs.MTU) (err error) {
	e.mtu = min(e.it.Port().Attr.ActiveMTU, mtu)
	e.peer, err = e.it.Port().Peer(deviceAddr)
	return err
}

// workQueues sends the due control messages, and cancels sends of a failed or closed EP.
func (e *queueEP) workQueues() (n int) {
	for len(e.replies) > 0 && e.Ready() {
		if e.SendControl(e.replies[0].encode()) != nil {
			e.it.schedule(e.task)
			return n
		}
		e.replies = e.replies[1:]
		n++
	}
	for i := range e.conns {
		n += e.conns[i].work()
	}
	return n
}

// stopConns flushes the sends in flight of a failed EP.
func (e *queueEP) stopConns() {
	for i := range e.conns {
		e.conns[i].stop()
	}
	e.it.schedule(e.task)
}

// closeQueues closes the targets. Sends to queues complete in a later Progress, or in Close of the
// iface.
func (e *queueEP) closeQueues() (errs error) {
	e.closed = true
	for i := range e.conns {
		c := &e.conns[i]
		if c.stop(); c.qp != nil {
			e.it.closing++
		}
	}
	e.it.schedule(e.task)
	for _, t := range e.targets {
		if t != nil {
			errs = errors.Join(errs, t.Close())
		}
	}
	e.targets = nil
	return errors.Join(errs, e.domain.release())
}

// handleControl handles a request or reply of the peer. It returns false if the message is invalid.
func (e *queueEP) handleControl(m message) bool {
	if m.kind == kindRequest {
		if len(e.replies) == maxQueueConns { // a valid peer has at most one outstanding request per connection
			return false
		}
		e.replies = append(e.replies, e.accept(m))
		e.it.schedule(e.task)
		return true
	}
	return int(m.conn) < len(e.conns) && e.conns[m.conn].handleReply(m)
}

// Attach implements uct.QueueSender. It prefers a connection that is connected. The first use of a
// connection creates its QP.
func (e *queueEP) Attach(number uint32) (uct.QueueConn, error) {
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
		if free == nil || free.link == linkDown {
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

// openDomain opens the private domain of the EP, if it has none.
func (e *queueEP) openDomain() error {
	if e.domain != nil {
		return nil
	}
	d := e.it.unusedDomain
	if d == nil {
		var err error
		if d, err = openPrivate(e.it.MD()); err != nil {
			return err
		}
	}
	e.it.unusedDomain, e.domain = nil, &domain{d, 1}
	return nil
}

// accept connects the target of a connection of the peer, and returns the reply. After an error the QPN
// in the reply is 0.
func (e *queueEP) accept(m message) message {
	reply := message{kind: kindReply, conn: m.conn}
	for len(e.targets) <= int(m.conn) {
		e.targets = append(e.targets, nil)
	}
	t, err := e.target(int(m.conn))
	if err == nil {
		err = e.connectTarget(t, m)
	}
	if err != nil {
		logger.Info("target not connected", "device", e.it.Port().Name, "reason", err)
		return reply
	}
	reply.qpn = t.Number()
	return reply
}

// target returns the target of a connection of the peer, in RESET.
func (e *queueEP) target(i int) (*verbs.QP, error) {
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

// connectTarget moves a target to RTR. Targets send nothing, so they need no RTS.
func (e *queueEP) connectTarget(t *verbs.QP, m message) error {
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
		MinRNRTimer: ibport.RNRTimerCode(cfg.RNRTimeout),
	}, verbs.QPMaskState|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|
		verbs.QPMaskRQPSN|verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer)
}

// status returns the status of a completed send. It is no fault if a queue does not exist or is
// stopped.
func status(wc *verbs.WC) ucs.Status {
	switch wc.Status {
	case verbs.WCRemInvReqErr, verbs.WCWRFlushErr:
		return ucs.StatusCanceled
	}
	return ib.CompletionStatus(wc)
}

// NewQueue implements uct.Queuer.
func (e *queueEP) NewQueue(depth int) (uct.Queue, error) {
	first, spare := e.domain == nil, e.it.unusedDomain
	q, err := e.newQueue(depth)
	if err == nil {
		return q, nil
	}
	if first && e.domain != nil { // undo openDomain
		if e.it.unusedDomain = spare; spare == nil {
			err = errors.Join(err, e.domain.release())
		}
		e.domain = nil
	}
	return nil, e.it.opError("new queue", err)
}

func (e *queueEP) newQueue(depth int) (*recvQueue, error) {
	it := e.it
	switch {
	case e.closed:
		return nil, uct.ErrClosed
	case it.cqFailed:
		return nil, rccore.ErrCQLost
	case depth < 1 || depth > it.limits.MaxDepth:
		return nil, fmt.Errorf("%w: depth %d not in 1..%d", uct.ErrInvalidParam, depth, it.limits.MaxDepth)
	case it.queues.live == it.limits.MaxQueues:
		return nil, fmt.Errorf("%w: %d queues are open", uct.ErrNoMemory, it.queues.live)
	case depth > it.cqFree:
		return nil, fmt.Errorf("%w: QUEUE_CQ_LEN of %d is used up", uct.ErrNoMemory, it.cfg.QueueCQDepth)
	}
	if err := e.openDomain(); err != nil {
		return nil, err
	}
	srq, err := it.MD().PD().CreateSRQ(verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, XRCD: e.domain.XRCD, CQ: it.VerbsCQ(),
		MaxWR: depth, MaxSGE: it.limits.MaxRecvIOV})
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
