package xrccore

import (
	"errors"
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// EP is an EP of rccore with connections to queues of its peer, and the targets of those that
// the peer has to queues here.
type EP struct {
	*rccore.EP
	base    uct.EP // with the RC QP, or EP itself
	it      *Iface
	path    *path // nil with an RC QP
	conns   []conn
	targets []*verbs.QP // by the peer's index
	domain  *domain     // of queues for the peer and of targets; nil until it is needed
	answers []message   // not sent yet
	peer    ib.DeviceAddr
	mtu     verbs.MTU // of the path: the smaller one
	listed  bool      // in it.busy or it.working
	closed  bool
}

var (
	_ uct.EP     = (*EP)(nil)
	_ uct.Queuer = (*EP)(nil)
)

// Ops implements uct.EP.
func (e *EP) Ops() *uct.Ops {
	ops := e.base.Ops()
	ops.Queues, ops.Connect = e, e
	if e.path != nil {
		ops.Notify = nil // a word leaves no room for the number of the EP
	}
	return ops
}

// Base is the EP that connections to queues are added to.
func (e *EP) Base() uct.EP { return e.base }

// Flush implements uct.EP.
func (e *EP) Flush(c *uct.Completion) (pending bool, err error) { return e.base.Flush(c) }

// Fence implements uct.EP.
func (e *EP) Fence() error { return e.base.Fence() }

// Connect implements uct.EPConnector.
func (e *EP) Connect(deviceAddr, epAddr []byte) error {
	if err := e.EP.Connect(deviceAddr, epAddr); err != nil {
		return err
	}
	peer, err := rcwire.ParseEPAddr(epAddr[:rcwire.EPAddrLen]) // the rest is of paths
	if err != nil {
		return err
	}
	if e.path != nil {
		e.it.later(e)
	}
	e.mtu = min(e.it.Port().Attr.ActiveMTU, peer.MTU)
	e.peer, err = e.it.Port().Peer(deviceAddr)
	return err
}

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

// work sends the control messages that are due, and ends sends of an EP that has failed or
// is closed.
func (e *EP) work() (n int) {
	if e.path != nil {
		n = e.path.work()
	}
	for len(e.answers) > 0 && e.Ready() {
		if e.SendControl(e.answers[0].encode()) != nil {
			e.it.later(e)
			return n
		}
		e.answers = e.answers[1:]
		n++
	}
	for i := range e.conns {
		n += e.conns[i].work()
	}
	return n
}

// Close implements uct.EP. Sends to queues end in a later Progress, or the Close of the iface.
func (e *EP) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	it := e.it
	it.eps = slices.DeleteFunc(it.eps, func(x *EP) bool { return x == e })
	var errs error
	for i := range e.conns {
		c := &e.conns[i]
		if c.stop(); c.qp != nil {
			it.closing++
		}
	}
	it.later(e)
	for _, t := range e.targets {
		if t != nil {
			errs = errors.Join(errs, t.Close())
		}
	}
	e.targets = nil
	return errors.Join(errs, e.domain.release(), e.base.Close())
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

// Control implements rccore.Extension.
func (it *Iface) Control(outer uct.EP, data []byte) bool {
	e := outer.(*EP)
	m, ok := parseMessage(data)
	if !ok {
		return false
	}
	if m.kind == kindSource || m.kind == kindOffer {
		return e.path != nil && e.path.control(m)
	}
	if m.kind == kindAsk {
		if len(e.answers) == maxQueueConns { // one for each connection is the most that there can be
			return false
		}
		e.answers = append(e.answers, e.accept(m))
		it.later(e)
		return true
	}
	return int(m.conn) < len(e.conns) && e.conns[m.conn].answered(m)
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
