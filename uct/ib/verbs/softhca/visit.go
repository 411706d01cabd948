package softhca

import (
	"slices"
	"time"

	"github.com/gucx/gucx/internal/guard"
)

// visits lists the accesses under way to the region of a key. The key must be gone from
// the table: who comes later finds that.
func (h *hca) visits(key uint32) []guard.Visit {
	return h.visitsOf(func(_ *inLink, region uint64, _ uint32) bool { return region == uint64(key) })
}

// visitsToQueue is visits for receives of an XRC SRQ.
func (h *hca) visitsToQueue(srqn uint32) []guard.Visit {
	return h.visitsOf(func(_ *inLink, _ uint64, at uint32) bool { return at == srqn })
}

// visitsFrom lists the accesses under way from the device with a GID.
func (h *hca) visitsFrom(gid [2]uint64) []guard.Visit {
	return h.visitsOf(func(l *inLink, _ uint64, _ uint32) bool { return l.gid == gid })
}

// visitsOf lists the accesses under way that match: by the peer, the region, and the XRC SRQ that the QP
// was at last. It looks at all guards of the peers, which have one for each QP.
func (h *hca) visitsOf(match func(l *inLink, region uint64, srqn uint32) bool) (list []guard.Visit) {
	h.linkMu.Lock() // no link is unmapped meanwhile
	defer h.linkMu.Unlock()
	for _, l := range *h.inbound.Load() {
		if !l.Present() {
			continue
		}
		for slot := range l.mem.guards() {
			if v, region := l.mem.guard(slot).look(l); region != 0 && match(l, region, v.Tag) {
				list = append(list, v)
			}
		}
	}
	return list
}

// Present implements guard.Peer. A peer whose link is down has died,
// which the kernel tells when all its threads are gone, or has closed its device, which
// it does when none of its QPs does anything.
func (l *inLink) Present() bool { return l.state.Load() == linkUp }

// PID implements guard.Peer.
func (l *inLink) PID() int { return l.pid }

// qpPatience is how long a QP that ends waits for its peer, which may be in the middle of
// an access: far more than any takes. A peer that does not run ends that later, unless
// the memory is deregistered, which waits longer and tells.
const visitTimeout = 100 * time.Millisecond

// awaitPeer waits until the accesses of a device that are under way are over, for qpPatience,
// and returns those that are not. What has been waited for in vain is not waited for again:
// a peer that is stopped holds up the end of all QPs to it once.
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

// grace waits until no thread of this process uses a pointer that it found before the
// call: in the requester of a QP, or on behalf of a peer.
func (h *hca) grace() {
	h.driving.Grace()
	h.eachQP(func(qp *queuePair) { qp.exec.Grace() })
}
