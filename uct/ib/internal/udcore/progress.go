package udcore

import (
	"errors"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/verbs"
)

const (
	// tickPolls is how many Progress calls pass between looks at the clock, each
	// about 20 ns, while a peer has to send an acknowledgement.
	tickPolls = 64
	// tickShare of the first timeout is how often connections are looked at.
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
		if wc.ID&ib.RecvID != 0 {
			it.receive(wc)
			continue
		}
		it.ci = wc.ID
		if wc.Status != verbs.WCSuccess {
			it.noteFault("completion", wc.Status.Err())
		}
	}
	it.finish()
	it.passTime()
	return n
}

// progressIdle is Progress without completions: acknowledgements that found no
// data to travel with, time, word from other goroutines.
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
	it.passTime()
	if it.backlog {
		it.finish()
	}
	return n
}

// finish does what may wait until the completions are handled.
func (it *Iface) finish() {
	if it.unread != nil || it.unreadZops != nil {
		it.endUnread()
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

// HasResources implements base.Gate: all messages of the iface need a packet. A flush that waits behind them needs
// none, but is not tried either until there is one.
func (it *Iface) HasResources() bool { return it.pool.Free() > 0 }

// passTime gives the time to connections that wait, now and then.
func (it *Iface) passTime() {
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

// tick goes through the waiting connections from the end: those that fail leave
// the list, and their completions may take out others.
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
			it.fail(c, ucs.StatusTimedOut, errors.New("the peer does not answer"))
		}
	}
}

// errCQ is the cause where connections end as there is no completion queue any more.
var errCQ = errors.New("the completion queue has failed")

// cqFailed ends every connection after an error of the completion queue: it has overrun, or the device
// cannot write to it, and takes no completions any more (IBTA volume 1, 10.10.2.3). In RESET the device
// lets go of what was posted. Connections that are made later end the same way.
func (it *Iface) cqFailed() {
	if it.qp.State() != verbs.QPStateReset {
		_ = it.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState) // a device that refuses has failed as a whole
	}
	it.ci = it.pi
	it.failAll(errCQ)
	it.ci = it.pi // a callback has posted
	it.endUnread()
}

// failAll ends every connection after a fault.
func (it *Iface) failAll(why error) {
	for c := range it.conns.All() {
		it.fail(c, ucs.StatusIOError, why)
	}
}
