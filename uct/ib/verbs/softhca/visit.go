package softhca

import (
	"slices"
	"time"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
)

// visit is an access of a peer to memory of this process that was under way when the
// guards were looked at. It goes on for as long as the guard does not change.
type visit struct {
	link *inLink
	slot uint32 // of the guard
	seq  uint32
	key  uint32
	srqn uint32 // of the last receive that the QP was at
}

// visits lists the accesses under way to the region of a key. The key must be gone from
// the table: who comes later finds that.
func (h *hca) visits(key uint32) []visit {
	return h.visitsOf(anyPeer, func(v visit) bool { return v.key == key })
}

// visitsToQueue is visits for receives of an XRC SRQ.
func (h *hca) visitsToQueue(srqn uint32) []visit {
	return h.visitsOf(anyPeer, func(v visit) bool { return v.srqn == srqn })
}

// visitsFrom lists the accesses under way from the device with a GID.
func (h *hca) visitsFrom(gid [2]uint64) []visit {
	return h.visitsOf(func(l *inLink) bool { return l.gid == gid }, func(visit) bool { return true })
}

func anyPeer(*inLink) bool { return true }

// visitsOf lists the accesses under way over the links from some peers. It looks at all their guards, of which a
// peer has one for each QP.
func (h *hca) visitsOf(from func(*inLink) bool, match func(visit) bool) (list []visit) {
	h.linkMu.Lock() // no link is unmapped meanwhile
	defer h.linkMu.Unlock()
	for _, l := range *h.inbound.Load() {
		if l.state.Load() != linkUp || !from(l) {
			continue
		}
		for slot := range l.mem.guards() {
			seq, key, srqn, ok := l.mem.guard(slot).visiting()
			if v := (visit{link: l, slot: slot, seq: seq, key: key, srqn: srqn}); ok && match(v) {
				list = append(list, v)
			}
		}
	}
	return list
}

// ongoing leaves those of the visits that go on. A peer whose link is down has died,
// which the kernel tells when all its threads are gone, or has closed its device, which
// it does when none of its QPs does anything.
func (h *hca) ongoing(list []visit) []visit {
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	return slices.DeleteFunc(list, func(v visit) bool {
		if v.link.state.Load() != linkUp {
			return true
		}
		seq, key, _, up := v.link.mem.guard(v.slot).visiting()
		return !up || seq != v.seq || key != v.key
	})
}

// await waits until the visits are over, for at most limit, and returns those that are
// not.
func (h *hca) await(list []visit, limit time.Duration) []visit {
	if len(list) == 0 {
		return nil
	}
	timelimit.Await(limit, func() bool {
		list = h.ongoing(list)
		return len(list) == 0
	})
	return list
}

// qpPatience is how long a QP that ends waits for its peer, which may be in the middle of
// an access: far more than any takes. A peer that does not run ends that later, unless
// the memory is deregistered, which waits longer and tells.
const qpPatience = 100 * time.Millisecond

// awaitPeer waits until the accesses of a device that are under way are over, for qpPatience,
// and returns those that are not. What has been waited for in vain is not waited for again:
// a peer that is stopped holds up the end of all QPs to it once.
func (h *hca) awaitPeer(gid [2]uint64) (inside []visit) {
	list := h.visitsFrom(gid)
	h.overdueMu.Lock()
	h.overdue = h.ongoing(h.overdue)
	late := slices.Clone(h.overdue)
	h.overdueMu.Unlock()
	known := func(v visit) bool { return slices.Contains(late, v) }
	fresh := h.await(slices.DeleteFunc(slices.Clone(list), known), qpPatience)
	h.overdueMu.Lock()
	h.overdue = append(h.overdue, fresh...)
	h.overdueMu.Unlock()
	return append(slices.DeleteFunc(list, func(v visit) bool { return !known(v) }), fresh...)
}

// inUseError is the error for memory that peers are inside of.
func inUseError(list []visit) error {
	e := &ucs.InUseError{}
	for _, v := range list {
		e.PIDs = append(e.PIDs, v.link.pid)
	}
	slices.Sort(e.PIDs)
	e.PIDs = slices.Compact(e.PIDs)
	return e
}

// grace waits until no thread of this process uses a pointer that it found before the
// call: in the requester of a QP, or on behalf of a peer.
func (h *hca) grace() {
	h.driving.grace()
	h.eachQP(func(qp *queuePair) { qp.exec.grace() })
}
