package udcore

import (
	"errors"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/verbs"
)

const (
	// tickPolls is the number of calls of Progress between reads of the clock, which take about 20
	// ns, while an acknowledgement of a peer is outstanding.
	tickPolls = 64
	// tickShare is the fraction of the first timeout after which connections are checked: 1/8.
	tickShare = 8
)

// Progress implements uct.Iface.
func (it *Iface) Progress() int {
	n := it.comp.Poll(it.wc)
	if n <= 0 {
		if n == 0 && it.acks == nil && it.active.Len() == 0 && !it.backlog && it.attn.Load() == 0 {
			return 0
		}
		return it.progressIdle(n)
	}
	wcs := it.wc[:n]
	for i := range wcs {
		wc := &wcs[i]
		if wc.ID&buffer.RecvID != 0 {
			it.receive(wc)
			continue
		}
		it.ci = wc.ID
		if wc.Status != verbs.WCSuccess {
			it.noteFault("completion", wc.Status.Err())
		}
	}
	it.finish()
	it.checkTime()
	return n
}

// progressIdle is Progress without completions: it sends acknowledgements that found no data,
// checks timeouts and handles events of other goroutines.
func (it *Iface) progressIdle(n int) int {
	if it.attn.Load() != 0 {
		it.failUnreachable()
	}
	if n < 0 || it.cqLost.Load() {
		it.wake.Lower()
		it.cqFailed()
		n = 0
	} else if why := it.fault.Load(); why != nil {
		it.wake.Lower()
		it.failAll(why)
	}
	if it.acks != nil {
		it.sendAcks()
	}
	it.checkTime()
	if it.backlog {
		it.finish()
	}
	return n
}

// finish does the work that can wait until the completions are handled.
func (it *Iface) finish() {
	if it.unread != nil || it.unreadZops != nil {
		it.completeUnread()
	}
	if it.stalled != nil {
		it.resume()
	}
	if it.arb.Len() > 0 {
		it.arb.Dispatch(it)
	}
	if it.backlog {
		it.backlog = false
		it.sendUrgentAcks()
	}
}

// HasResources implements base.Gate. All messages of the iface need a packet. A pending flush after
// them needs none, but is not tried until there is one.
func (it *Iface) HasResources() bool { return it.pool.Free() > 0 }

// checkTime calls tick regularly while connections wait.
func (it *Iface) checkTime() {
	if it.active.Len() == 0 {
		return
	}
	if it.polls++; it.polls < tickPolls {
		return
	}
	it.polls = 0
	now := it.now()
	if now-it.lastTick < it.params.Timeout/tickShare {
		return
	}
	it.lastTick = now
	it.tick(now)
}

// tick handles timeouts of waiting connections. It starts at the end of the list, because failing
// connections are removed, and their completions may remove others.
func (it *Iface) tick(now time.Duration) {
	for i := it.active.Len() - 1; i >= 0; i-- {
		if i >= it.active.Len() {
			continue
		}
		c := it.active.All()[i]
		switch c.proto.Tick(now) {
		case dgram.ActConnect:
			it.sendCreq(c)
		case dgram.ActResend:
			it.resends.Inc()
			c.unsent = c.head
			it.transmit(c)
		case dgram.ActFail:
			it.fail(c, ucs.StatusTimedOut, errors.New("the peer does not reply"))
		}
	}
}

// errCQ is the cause of failures after an error of the completion queue.
var errCQ = errors.New("the completion queue has failed")

// cqFailed fails every connection after an error of the completion queue: the queue has overrun or
// the device cannot write to it, and it gets no more completions (IBTA volume 1, 10.10.2.3). In
// state RESET the device does not use posted memory any more. Later connections fail in the same
// way.
func (it *Iface) cqFailed() {
	if it.qp.State() != verbs.QPStateReset {
		_ = it.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState) // an error means that the whole device has failed
	}
	it.ci = it.pi
	it.failAll(errCQ)
	it.ci = it.pi // a callback has posted
	it.completeUnread()
}

// failAll fails every connection.
func (it *Iface) failAll(why error) {
	for c := range it.conns.All() {
		it.fail(c, ucs.StatusIOError, why)
	}
}
