package softhca

import (
	"slices"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/table"
)

// A message to an XRC SRQ that has no receive waits. With a retry count it looks again
// after the delay that the target asks for. Without one (7) it sleeps until the target
// has posted: its device says in the link, and on the target's control page, that it
// waits, then looks once more; the target posts, and then looks at its control page. One
// of them sees the other.

// noReceive waits for a receive in the SRQ of w, or fails.
func (qp *queuePair) noReceive(w *prm.WQE) stepResult {
	r := &qp.req
	switch r.rnrLeft {
	case verbs.RNRForever:
		return qp.starve(w.SRQN)
	case 0:
		qp.enterError(prm.SyndromeRNRExceeded, prm.SyndromeOK)
		return stepFail
	}
	r.rnrLeft--
	r.holdTill = qp.hca.clock() + rnrDelay(uint8(qp.peerEntry().RNRTimer.Load()))
	return qp.sleepUntil(r.holdTill)
}

// starve waits for a receive in an SRQ, or for its end or the target's.
func (qp *queuePair) starve(srqn uint32) stepResult {
	l := qp.req.link
	l.txLock.Lock()
	others := len(l.starved) > 0
	if !qp.queued.Swap(true) {
		l.starved = append(l.starved, qp)
	}
	l.txLock.Unlock()
	// The peer may have answered the others, and unblock would not see that any more.
	woken := l.mem.header().starved.Swap(1) == 0 && others
	l.ctl.starving.Store(1)
	if woken || qp.canRetry(srqn) || l.state.Load() == linkDown {
		l.scheduleStarving()
	}
	return stepWait
}

// worthAnotherTry reports whether a message to an SRQ would find a receive, or an error.
func (qp *queuePair) canRetry(srqn uint32) bool {
	l := qp.req.link
	s := l.table.SRQ(srqn)
	_, next := table.SplitClaim(l.claims.Of(srqn).Load())
	return s.SRQN.Load() != srqn || uint16(s.Posted.Load()) != next ||
		!qp.peerEntry().Accepts(qp.attr.DestQPN, qp.qpn, &qp.hca.gidWords)
}

// stopStarving ends the wait of the QP for a receive of the peer: a waiting QP is scheduled for
// nothing else. exec is held, and the QP still uses its link.
func (qp *queuePair) stopStarving() {
	l := qp.req.link
	if l == nil {
		return
	}
	l.txLock.Lock()
	i := slices.Index(l.starved, qp)
	if i >= 0 {
		l.starved = slices.Delete(l.starved, i, i+1)
	}
	l.txLock.Unlock()
	if i >= 0 {
		qp.hca.enqueue(qp)
	}
}

// scheduleStarving schedules the QPs that wait for receives of the peer.
func (l *outLink) scheduleStarving() {
	l.txLock.Lock()
	list := l.starved
	l.starved, l.starvedSpare = l.starvedSpare[:0], nil
	l.txLock.Unlock()
	for i, qp := range list {
		list[i] = nil
		l.hca.enqueue(qp)
	}
	l.txLock.Lock()
	l.starvedSpare = list[:0]
	l.txLock.Unlock()
}

// wakeStarving has those woken who wait for receives of this device, if there are any.
func (h *hca) wakeStarving() {
	if h.ctl.starving.Load() != 0 {
		h.call(attnFeed)
	}
}

// feedPeers wakes the peers whose QPs wait for receives. driving is held.
func (h *hca) feedPeers() {
	h.ctl.starving.Store(0) // before the looks at links; pairs with starve
	for _, l := range *h.inbound.Load() {
		if l.mem.header().starved.Swap(0) != 0 {
			call(l.ctl, l.wakeFD, attnResponse)
		}
	}
}
