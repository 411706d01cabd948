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

// Iface is an open transport: that of rccore, with an XRC domain. It implements
// rccore.Extension.
type Iface struct {
	*rccore.Iface
	base   BaseIface
	poster Poster
	name   string
	cfg    Config
	attr   uct.IfaceAttr
	spare  *verbs.XRCD // a private domain that no EP has taken yet; may be nil
	node   *node       // nil: EPs have RC QPs

	eps    []*EP // not closed
	conns  table[conn]
	queues table[recvQueue]
	cqFree int // completions that no queue or connection has taken
	sges   []verbs.SGE
	recv   [1]verbs.RecvWR

	round     uint64 // calls of Progress
	allPolled uint64 // rounds in which a full completion queue has been polled
	busy      []*EP  // have deferred work
	working   []*EP  // busy, while it is done
	draining  []*recvQueue
	closing   int  // connections of closed EPs that have sends under way
	lost      bool // the completion queue has failed
	closed    bool
}

var (
	_ uct.Iface        = (*Iface)(nil)
	_ rccore.Extension = (*Iface)(nil)
)

// openDomains opens a private domain, for the queues of the first EP that has some, and the shared one if the
// configuration says so.
func (it *Iface) openDomains(md *ib.MD) (err error) {
	if it.spare, err = openPrivate(md); err != nil || !it.cfg.Shares() {
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
	it.node = newNode(it, d)
	return nil
}

func (it *Iface) closeDomains() error {
	var err error
	if it.spare != nil {
		err = it.spare.Close()
	}
	if it.node != nil {
		err = errors.Join(err, it.node.domain.Close())
	}
	return err
}

// openQueues declares what the core does not have; overhead is that of a post.
func (it *Iface) openQueues(overhead time.Duration) {
	dev := it.MD().DeviceAttr()
	it.sges = make([]verbs.SGE, 0, maxRecvIOV)
	it.allPolled = uint64(it.VerbsCQ().Depth()/it.Config().MaxPoll) + 1
	it.attr = *it.Iface.Attr()
	it.attr.Resource.Explicit = true
	it.attr.Caps |= uct.CapQueue
	if it.node != nil {
		it.attr.Caps &^= uct.CapNotify
	}
	it.attr.Queue = uct.QueueAttr{
		MaxMessage: it.MD().MaxMessage(),
		MaxIOV:     it.Config().TxMaxSGE,
		MaxRecvIOV: min(maxRecvIOV, dev.MaxSRQSGE),
		MaxDepth:   min(maxQueueDepth, it.cfg.QueueCQDepth/2, dev.MaxSRQWR),
		MaxQueues:  min(maxQueues, it.cfg.QueueCQDepth/2, dev.MaxSRQ),
		MaxConns:   it.cfg.QueueConns,
	}
	costs := it.Port().Costs(overhead)
	costs.Set(costs[uct.PutZcopy], uct.QueueZcopy)
	it.attr.Declare(costs)
}

// Attr implements uct.Iface.
func (it *Iface) Attr() *uct.IfaceAttr { return &it.attr }

// Ext implements uct.Iface. There is no Watch: deferred work does not show in the queue.
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

// deferred reports that Progress has something to do that no completion tells of.
func (it *Iface) deferred() bool {
	return len(it.busy)+len(it.draining) > 0 || it.node != nil && len(it.node.recovering) > 0
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

// work does what was deferred. drained says that the completion queue was empty in this
// round.
func (it *Iface) work(drained bool) (n int) {
	it.working, it.busy = it.busy, it.working[:0]
	for i, e := range it.working {
		it.working[i] = nil
		e.listed = false
		n += e.work()
	}
	if it.node != nil {
		n += it.node.work()
	}
	return n + it.endDrained(drained)
}

// Completed implements rccore.Extension.
func (it *Iface) Completed(wc verbs.WC) {
	if it.lost { // it came between the poll that found none and the error, and has ended
		return
	}
	id := workID(wc.ID)
	if id.isRecv() {
		if q := it.queues.at(id.number()); q != nil {
			q.completed(id.slot(), &wc)
		}
		return
	}
	if c := it.conns.at(id.number()); c != nil {
		c.completed(&wc)
	}
}

// Failed implements rccore.Extension: what the connections have under way ends.
func (it *Iface) Failed(outer uct.EP) {
	e := outer.(*EP)
	if e.path != nil {
		e.path.failed()
	}
	for i := range e.conns {
		e.conns[i].stop()
	}
	it.later(e)
}

// closeTimeout bounds how long Close waits for a device that is broken: flushing a queue
// takes microseconds.
const closeTimeout = 5 * time.Second

// Close implements uct.Iface. With a *ucs.InUseError of a queue it is still open.
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
		it.node.leaving = true
	}
	for _, q := range it.queues.all() {
		if err := q.await(); err != nil {
			return err
		}
	}
	it.drain()
	var errs error
	for _, q := range it.queues.all() {
		errs = errors.Join(errs, q.Close())
	}
	it.closed = true
	return errors.Join(errs, it.base.Close(), it.closeDomains())
}

// drain drives the iface until nothing is under way on connections and queues.
func (it *Iface) drain() {
	limit := timelimit.New(closeTimeout)
	// Closing the QPs ends what is left when it is over.
	_ = limit.Poll(func() bool { return it.closing == 0 && !it.deferred() }, it.Progress)
}

// Lost implements rccore.Extension. What connections have under way ends here, when the device has let go
// of it, and the receives of queues in endLost.
func (it *Iface) Lost() {
	it.lost = true
	for _, c := range it.conns.all() {
		c.lost()
	}
	for _, q := range it.queues.all() {
		if !q.stopped { // else it is listed, or its receives have ended
			it.draining = append(it.draining, q)
		}
	}
}
