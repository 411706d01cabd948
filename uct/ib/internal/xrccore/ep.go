package xrccore

import (
	"errors"
	"slices"

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
