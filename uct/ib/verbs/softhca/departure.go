package softhca

import (
	"encoding/binary"
	"slices"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/table"
)

// tellIfGone raises EventUnreachable on the QPs that are not connected to one port if a port, with
// which a link has ended, has no other one with us in either direction: nobody is there
// any more, and what it had sent has been delivered. A QP may not have heard of the port.
// No lock of the device is held.
func (h *hca) tellIfGone(gid [2]uint64) {
	s := h.sink.Load()
	if s == nil || h.linked(gid) {
		return
	}
	h.eachQP(func(qp *queuePair) {
		if qp.service == verbs.QPTypeUD || qp.hasMembers() {
			(*s).Unreachable(qp.qpn, gidOf(gid))
		}
	})
}

// hasMembers reports whether the QP is an initiator to a domain that several devices share.
func (qp *queuePair) hasMembers() bool {
	if qp.service != verbs.QPTypeXRCSend {
		return false
	}
	qp.exec.Lock() // for the attributes
	defer qp.exec.Release()
	return qp.toSharedTarget()
}

// linked reports whether a port reaches us, or we reach it.
func (h *hca) linked(gid [2]uint64) bool {
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	return slices.ContainsFunc(*h.inbound.Load(), func(l *inLink) bool { return l.gid == gid }) ||
		slices.ContainsFunc(*h.outbound.Load(), func(l *outLink) bool { return table.GIDWords(l.gid) == gid })
}

// gidOf is the GID that gidWords takes apart.
func gidOf(words [2]uint64) (gid verbs.GID) {
	binary.NativeEndian.PutUint64(gid[:8], words[0])
	binary.NativeEndian.PutUint64(gid[8:], words[1])
	return gid
}
