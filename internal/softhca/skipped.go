package softhca

import (
	"slices"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
)

// When a device is gone, its claims in XRC SRQs are released. If it had violated the protocol, the
// claim words may have skipped receives that no device has filled: they complete as flushed, so that
// the queues have room for others.

// releaseClaims releases the claims of all XRC SRQs after the end of a link. All notices of the
// link have been handled.
func (h *hca) releaseClaims() {
	h.mu.Lock()
	n := h.srqIDs.next
	h.mu.Unlock()
	var skipped []skippedRecvs
	for i := range n + 1 {
		if q := h.xrcSRQs.slot.Load(i); q != nil {
			q.releaseClaim()
			if end, some := q.skippedUpTo(); some {
				skipped = append(skipped, skippedRecvs{q, end})
			}
		}
	}
	h.flushSkipped(skipped)
}

// skippedRecvs are the receives of a queue that its claim word has skipped, up to end.
type skippedRecvs struct {
	q   *recvQueue
	end uint16
}

// releaseClaim releases the claim of a device that has no link with this one. All its messages have
// been handled.
func (q *recvQueue) releaseClaim() {
	q.mu.Lock()
	w := q.xrc.window
	word := w.claim.Load()
	if by, seq := table.SplitClaim(word); by != 0 && !q.hca.hasClaimant(by) {
		if !w.isShown(seq) {
			seq++
		}
		w.claim.CompareAndSwap(word, table.Claimed(0, seq))
	}
	q.mu.Release()
	q.hca.wakeStarving()
}

// hasClaimant reports whether a device has a link, without which it cannot claim.
func (h *hca) hasClaimant(id uint64) bool {
	return slices.ContainsFunc(*h.inbound.Load(), func(l *inLink) bool { return table.ClaimID(l.gid) == id })
}

// flushSkipped completes as flushed the receives that the released claims have skipped, except
// those in a notice: a sender that fills a receive sends the notice before it passes on the claim.
// If a claim was revoked, its owner may be in the middle of a message to one of these receives;
// flushSkipped waits for that, once for all queues. If the wait times out, the receives remain
// posted.
func (h *hca) flushSkipped(list []skippedRecvs) {
	if len(list) == 0 {
		return
	}
	inside := h.visitsOf(func(_ *inLink, _ uint64, srqn uint32) bool {
		return slices.ContainsFunc(list, func(s skippedRecvs) bool { return s.q.srqn == srqn })
	})
	inside = h.owner.Await(inside, visitTimeout)
	for _, s := range list {
		if !slices.ContainsFunc(inside, func(v guard.Visit) bool { return v.Tag == s.q.srqn }) {
			h.flushSkippedOf(s)
		}
	}
}

// flushSkippedOf flushes the skipped receives of one queue for which there is no notice.
func (h *hca) flushSkippedOf(s skippedRecvs) {
	h.driving.Lock()
	defer h.driving.Unlock()
	if h.xrcSRQs.findAny(s.q.srqn) != s.q {
		return // it was destroyed meanwhile
	}
	var noticed [table.ShownRecvs]bool
	for _, l := range *h.inbound.Load() {
		l.eachNotice(func(pkt *ring.Packet) {
			if pkt.Ext == s.q.srqn {
				noticed[pkt.RAddr%table.ShownRecvs] = true
			}
		})
	}
	for seq := s.end - table.ShownRecvs; seq != s.end; seq++ {
		if !noticed[seq%table.ShownRecvs] {
			s.q.flushRecv(seq)
		}
	}
}

// skippedUpTo returns the receive of the claim word, and whether a receive before it was not
// consumed. A claim word that is not valid counts as one after all published receives.
func (q *recvQueue) skippedUpTo() (end uint16, some bool) {
	q.mu.Lock()
	defer q.mu.Release()
	w := q.xrc.window
	word := w.claim.Load()
	_, end = table.SplitClaim(word)
	if end-w.base > w.posted-w.base {
		end = w.posted
		if !w.claim.CompareAndSwap(word, table.Claimed(0, end)) {
			return 0, false
		}
	}
	return end, end != w.base
}

// flushRecv completes receive seq as flushed, if it is still posted.
func (q *recvQueue) flushRecv(seq uint16) {
	q.mu.Lock()
	w := q.xrc.window
	if !w.isShown(seq) {
		q.mu.Release()
		return
	}
	index := w.slots[seq%table.ShownRecvs].index
	q.consume(seq)
	q.complete(&ring.Packet{}, index, false)
}
