package softhca

import (
	"slices"
	"time"

	"github.com/gucx/gucx/internal/guard"
)

// visits lists the accesses in progress to the region of a key. The key must have been removed from
// the table before, so that later accesses fail.
func (h *hca) visits(key uint32) []guard.Visit {
	return h.visitsOf(func(_ *inLink, region uint64, _ uint32) bool { return region == uint64(key) })
}

// visitsToQueue is visits for receives of an XRC SRQ.
func (h *hca) visitsToQueue(srqn uint32) []guard.Visit {
	return h.visitsOf(func(_ *inLink, _ uint64, at uint32) bool { return at == srqn })
}

// visitsFrom lists the accesses in progress of the device with a GID.
func (h *hca) visitsFrom(gid [2]uint64) []guard.Visit {
	return h.visitsOf(func(l *inLink, _ uint64, _ uint32) bool { return l.gid == gid })
}

// visitsOf lists the accesses in progress for which match returns true; srqn is the XRC SRQ of the
// latest receive that the QP has filled. It reads all guards of the peers, which have one for each
// QP.
func (h *hca) visitsOf(match func(l *inLink, region uint64, srqn uint32) bool) (list []guard.Visit) {
	h.linkMu.Lock() // no link is unmapped meanwhile
	defer h.linkMu.Unlock()
	for _, l := range *h.inbound.Load() {
		if !l.Present() {
			continue
		}
		for slot := range l.mem.guards() {
			g := l.mem.guard(slot)
			if g.Idle() { // nearly all are, and there may be thousands
				continue
			}
			if v, region := g.look(l); region != 0 && match(l, region, v.Tag) {
				list = append(list, v)
			}
		}
	}
	return list
}

// Present implements guard.Peer. A peer whose link is down has died, which the kernel
// reports when all its threads are gone, or has closed its device, after all its QPs have
// stopped.
func (l *inLink) Present() bool { return l.state.Load() == linkUp }

// PID implements guard.Peer.
func (l *inLink) PID() int { return l.pid }

// visitTimeout is the time that the reset or destruction of a QP waits for accesses of the peer: much
// more than an access of a running peer takes. A stopped peer completes its access later.
// Deregistration waits longer, and returns an error.
const visitTimeout = 100 * time.Millisecond

// awaitVisits waits up to visitTimeout for the accesses in progress of a device, and returns those
// that are not over. It does not wait again for an access that has exceeded this time before: a
// stopped peer delays the end of all its QPs only once.
func (h *hca) awaitVisits(gid [2]uint64) (inside []guard.Visit) {
	list := h.visitsFrom(gid)
	h.overdueMu.Lock()
	h.overdue = h.owner.Ongoing(h.overdue)
	late := slices.Clone(h.overdue)
	h.overdueMu.Unlock()
	known := func(v guard.Visit) bool { return slices.Contains(late, v) }
	fresh := h.owner.Await(slices.DeleteFunc(slices.Clone(list), known), visitTimeout)
	h.overdueMu.Lock()
	h.overdue = append(h.overdue, fresh...)
	h.overdueMu.Unlock()
	return append(slices.DeleteFunc(list, func(v guard.Visit) bool { return !known(v) }), fresh...)
}

// grace waits until no thread of this process uses a pointer to a region that it has looked up before
// the call, as a requester or on behalf of a peer.
func (h *hca) grace() {
	h.driving.Grace()
	h.eachQP(func(qp *queuePair) { qp.exec.Grace() })
}
