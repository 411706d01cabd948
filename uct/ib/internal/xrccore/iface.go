package xrccore

import (
	"errors"
	"time"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Iface is an open iface: that of rccore with an XRC domain. It implements rccore.Extension.
type Iface struct {
	ifaceCore
	queueSet
	base   BaseIface
	attr   uct.IfaceAttr
	node   *node // nil: EPs have RC QPs
	eps    []*EP // not closed
	closed bool
}

var (
	_ uct.Iface        = (*Iface)(nil)
	_ rccore.Extension = (*Iface)(nil)
)

// openDomains opens a private domain, which the first EP with queues uses, and the shared one if it
// is configured.
func (it *Iface) openDomains(md *ib.MD) (err error) {
	if it.unusedDomain, err = openPrivate(md); err != nil || !it.cfg.Shares() {
		return err
	}
	file := ""
	if it.cfg.ShareDomain == ShareHost {
		file = ib.DomainFile(it.cfg.DomainDir, md.Context().Device().Name())
	}
	d, err := md.OpenDomain(file)
	if err != nil {
		return errors.Join(err, it.closeDomains())
	}
	it.node = newNode(&it.ifaceCore, d)
	return nil
}

func (it *Iface) closeDomains() error {
	var err error
	if it.unusedDomain != nil {
		err = it.unusedDomain.Close()
	}
	if it.node != nil {
		err = errors.Join(err, it.node.domain.Close())
	}
	return err
}

// openQueues adds the attributes of queues to those of the core. overhead is the cost of a post.
func (it *Iface) openQueues(overhead time.Duration) {
	it.allPolled = uint64(it.VerbsCQ().Depth()/it.Config().MaxPoll) + 1
	it.attr = *it.Iface.Attr()
	it.attr.Resource.Explicit = true
	it.attr.Caps |= uct.CapQueue
	if it.node != nil {
		it.attr.Caps &^= uct.CapNotify
	}
	it.queueSet.open(&it.ifaceCore, &it.attr.Queue)
	costs := it.Port().Costs(overhead)
	costs.Set(costs[uct.PutZcopy], uct.QueueZcopy)
	it.attr.Declare(costs)
}

// Attr implements uct.Iface.
func (it *Iface) Attr() *uct.IfaceAttr { return &it.attr }

// Ext implements uct.Iface. It has no Watch: the completion queue does not show deferred work.
func (it *Iface) Ext() *uct.IfaceExt {
	ext := it.Iface.Ext()
	ext.Wake, ext.Watch = it, nil
	ext.Measure = it.Port().Measurer(&it.attr)
	return ext
}

// Arm implements uct.Waker.
func (it *Iface) Arm(events uct.Events) error {
	if it.deferred() {
		return uct.ErrBusy
	}
	return it.base.Arm(events)
}

// deferred reports whether Progress has work without a completion.
func (it *Iface) deferred() bool {
	return len(it.due)+len(it.draining) > 0 || it.node != nil && len(it.node.recovering) > 0
}

// Progress implements uct.Iface.
func (it *Iface) Progress() int {
	it.round++
	n := it.base.Progress()
	if it.deferred() {
		n += it.work(n < it.Config().MaxPoll)
	}
	return n
}

// Flush implements uct.Iface.
func (it *Iface) Flush(c *uct.Completion) (pending bool, err error) { return it.base.Flush(c) }

// Fence implements uct.Iface.
func (it *Iface) Fence() error { return it.base.Fence() }

// work does deferred work. drained: this Progress found the completion queue empty.
func (it *Iface) work(drained bool) (n int) {
	n = it.runTasks()
	if it.node != nil {
		n += it.node.work()
	}
	return n + it.completeDrained(drained)
}

// HandleCompletion implements rccore.Extension.
func (it *Iface) HandleCompletion(wc verbs.WC) {
	it.handleCompletion(&wc)
}

// HandleFailure implements rccore.Extension. It flushes the sends in flight of the connections.
func (it *Iface) HandleFailure(outer uct.EP) {
	e := outer.(*EP)
	if e.path != nil {
		e.path.handleFailure()
	}
	e.stopConns()
}

// closeTimeout is the maximum time that Close waits for a broken device. Flushing a queue takes
// microseconds.
const closeTimeout = 5 * time.Second

// Close implements uct.Iface. If it returns a *ucs.InUseError of a queue, the iface is still open.
func (it *Iface) Close() error {
	if it.closed {
		return nil
	}
	for len(it.eps) > 0 {
		if err := it.eps[0].Close(); err != nil {
			return err
		}
	}
	if it.node != nil {
		it.node.closing = true
	}
	if err := it.stopAll(); err != nil {
		return err
	}
	it.drain()
	err := it.closeAll()
	it.closed = true
	return errors.Join(err, it.base.Close(), it.closeDomains())
}

// drain calls Progress until no send or receive of connections and queues is in flight.
func (it *Iface) drain() {
	limit := timelimit.New(closeTimeout)
	// After the time limit, closing the QPs cancels the rest.
	_ = limit.Poll(func() bool { return it.closing == 0 && !it.deferred() }, it.Progress)
}

// HandleCQError implements rccore.Extension.
func (it *Iface) HandleCQError() { it.handleCQError() }
