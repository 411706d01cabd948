package softhca

import (
	"encoding/binary"
	"slices"

	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// reportIfGone is called after a link with a port has ended. If the port has no other link with
// this device in either direction, it does not exist any more and everything that it sent has been
// delivered. Then reportIfGone raises EventUnreachable on the QPs that are not connected to a
// single port, also on those that never communicated with this port. No lock of the device is held.
func (h *hca) reportIfGone(gid [2]uint64) {
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

// linked reports whether there is a link with a port, in either direction.
func (h *hca) linked(gid [2]uint64) bool {
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	return slices.ContainsFunc(*h.inbound.Load(), func(l *inLink) bool { return l.gid == gid }) ||
		slices.ContainsFunc(*h.outbound.Load(), func(l *outLink) bool { return table.GIDWords(l.gid) == gid })
}

// gidOf is the inverse of table.GIDWords.
func gidOf(words [2]uint64) (gid verbs.GID) {
	binary.NativeEndian.PutUint64(gid[:8], words[0])
	binary.NativeEndian.PutUint64(gid[8:], words[1])
	return gid
}
