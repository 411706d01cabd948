package ib

import (
	"errors"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// CQPoller is implemented by a Transport that polls completion queues without package verbs.
type CQPoller interface {
	// PollerOf returns a function that polls cq, which never has a completion.
	PollerOf(cq *verbs.CQ) (poll func(), err error)
}

// idleTx is an iface with an additional completion queue of sends, for Config.PollIdleTx. Nothing
// is posted to the queue, and each Progress polls it.
type idleTx struct {
	uct.Iface
	cq   *verbs.CQ
	poll func()
}

// idleTxDepth is the depth of the additional queue.
const idleTxDepth = 16

// newIdleTx adds a queue to it, which is polled as tl polls its queues. After an error it closes
// it.
func (md *MD) newIdleTx(it uct.Iface, tl Transport) (uct.Iface, error) {
	cq, err := md.ctx.CreateCQ(verbs.CQInitAttr{Depth: idleTxDepth, SingleThreaded: true})
	if err != nil {
		return nil, errors.Join(md.opError("create cq", err), it.Close())
	}
	poll := verbsPoll(cq)
	if p, ok := tl.(CQPoller); ok {
		if poll, err = p.PollerOf(cq); err != nil {
			return nil, errors.Join(md.opError("open iface", err), cq.Close(), it.Close())
		}
	}
	return &idleTx{Iface: it, cq: cq, poll: poll}, nil
}

// verbsPoll returns a function that polls an empty queue through package verbs.
func verbsPoll(cq *verbs.CQ) func() {
	wc := make([]verbs.WC, 1)
	return func() { cq.Poll(wc) }
}

// Ext implements uct.Iface. The iface has no watch, so that the caller always calls Progress.
func (i *idleTx) Ext() *uct.IfaceExt {
	ext := *i.Iface.Ext()
	ext.Watch = nil
	return &ext
}

// Progress implements uct.Iface.
func (i *idleTx) Progress() int {
	i.poll()
	return i.Iface.Progress()
}

// Close implements uct.Iface.
func (i *idleTx) Close() error { return errors.Join(i.Iface.Close(), i.cq.Close()) }
