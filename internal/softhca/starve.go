package softhca

import (
	"slices"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// A message to an XRC SRQ without a receive waits. If the RNR retries are limited, it tries again
// after the delay that the target requests. If they are not (7), it sleeps until the target has
// posted: its device stores in the link, and on the control page of the target, that it waits, and
// then checks for a receive again; the target posts, and then reads its control page. So one of
// them sees the store of the other.

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

// starve waits for a receive in an SRQ, or until the SRQ or the target is gone.
func (qp *queuePair) starve(srqn uint32) stepResult {
	l := qp.req.link
	l.txLock.Lock()
	others := len(l.starved) > 0
	if !qp.queued.Swap(true) {
		l.starved = append(l.starved, qp)
	}
	l.txLock.Unlock()
	// The peer may have woken the others already; this store would hide that from unblock.
	woken := l.mem.header().starved.Swap(1) == 0 && others
	l.ctl.starving.Store(1)
	if woken || qp.canRetry(srqn) || l.state.Load() == linkDown {
		l.scheduleStarving()
	}
	return stepWait
}

// canRetry reports whether a message to an SRQ would find a receive, or fail.
func (qp *queuePair) canRetry(srqn uint32) bool {
	l := qp.req.link
	s := l.table.SRQ(srqn)
	_, next := table.SplitClaim(l.claims.Of(srqn).Load())
	return s.SRQN.Load() != srqn || uint16(s.Posted.Load()) != next ||
		!qp.peerEntry().Accepts(qp.attr.DestQPN, qp.qpn, &qp.hca.gidWords)
}

// stopStarving ends the wait of the QP for a receive of the peer: while it waits, schedule has no
// effect. exec is held, and the QP still uses its link.
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

// wakeStarving makes Drive wake the peers that wait for receives of this device, if there are any.
func (h *hca) wakeStarving() {
	if h.ctl.starving.Load() != 0 {
		h.call(attnFeed)
	}
}

// feedPeers wakes the peers whose QPs wait for receives. driving is held.
func (h *hca) feedPeers() {
	h.ctl.starving.Store(0) // before links are read; pairs with starve
	for _, l := range *h.inbound.Load() {
		if l.mem.header().starved.Swap(0) != 0 {
			call(l.ctl, l.wakeFD, attnResponse)
		}
	}
}
