package xrccore

import (
	"errors"
	"slices"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
)

// EP is an EP of rccore, with connections to queues of the peer and with targets for the connections of
// the peer to queues of this side.
type EP struct {
	*rccore.EP
	queueEP
	base uct.EP // the EP of the base with the RC QP; EP itself if path is not nil
	it   *Iface
	path *path // nil with an RC QP
	task task
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
		ops.Notify = nil // the immediate contains the number of the EP
	}
	return ops
}

// Base returns the EP to which this package adds connections to queues.
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
	peer, err := rcwire.ParseEPAddr(epAddr[:rcwire.EPAddrLen]) // the other bytes are for paths
	if err != nil {
		return err
	}
	if e.path != nil {
		e.it.schedule(&e.task)
	}
	return e.connect(deviceAddr, peer.MTU)
}

// work is the task of the EP: the work of its path and of its connections to queues.
func (e *EP) work() (n int) {
	if e.path != nil {
		n = e.path.work()
	}
	return n + e.workQueues()
}

// Close implements uct.EP. Sends to queues complete in a later Progress, or in Close of the iface.
func (e *EP) Close() error {
	if e.closed {
		return nil
	}
	e.it.eps = slices.DeleteFunc(e.it.eps, func(x *EP) bool { return x == e })
	return errors.Join(e.closeQueues(), e.base.Close())
}

// HandleControl implements rccore.Extension.
func (it *Iface) HandleControl(outer uct.EP, data []byte) bool {
	e := outer.(*EP)
	m, ok := parseMessage(data)
	if !ok {
		return false
	}
	if m.kind == kindSource || m.kind == kindOffer {
		return e.path != nil && e.path.handleControl(m)
	}
	return e.handleControl(m)
}
