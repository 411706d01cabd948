package softhca

import (
	"slices"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// A rejected request stops the QPs of both sides. If the requester has rejected it, a packet reports
// the fault to the QP of the peer. For a shared target the report goes to all members that are
// reached, as one that is about to leave may not read it; any of them records the fault in the
// directory. If a link goes down and the directory does not show the fault, another member that
// refers to the target is dialed.

// faultReport is the progress of an initiator in reporting a fault of a shared target to its
// members.
type faultReport struct {
	reported bool        // over all links that were up
	dialed   []verbs.GID // members that were dialed for the report
}

// sendFault reports a fault to the QP of the peer if it concerns that QP too. False if a ring has no
// room for the report.
func (qp *queuePair) sendFault() (sent bool) {
	r := &qp.req
	switch {
	case r.fault == prm.SyndromeOK:
		return true
	case r.link == nil:
		r.fault = prm.SyndromeOK
		return true
	case r.shared != nil:
		return qp.notifyReached()
	}
	if sent = qp.sendFaultOver(r.link); sent {
		r.fault = prm.SyndromeOK
	}
	return sent
}

// notifyReached is sendFault for a shared target. The fault remains recorded: see notifyAnother.
func (qp *queuePair) notifyReached() (sent bool) {
	s := qp.req.shared
	if s.fault.reported {
		return true
	}
	reached := false
	sent = true
	for _, p := range s.paths {
		if p.link.state.Load() == linkUp {
			reached = true
			sent = qp.sendFaultOver(p.link) && sent
		}
	}
	s.fault.reported = reached && sent
	return sent
}

// notifyAnother dials one more member that refers to the target, if the members that were notified
// of the fault have closed and the fault is not visible. If there is no such member, no
// notification is needed. exec is held.
func (qp *queuePair) notifyAnother() {
	r := &qp.req
	s := r.shared
	if r.fault == prm.SyndromeOK || s == nil || s.fault.reported {
		return
	}
	for qp.targetReceives() {
		if i := slices.IndexFunc(s.paths, func(p *path) bool { return p.link.state.Load() == linkDialing }); i >= 0 {
			qp.awaitLink(s.paths[i].link)
			return
		}
		m, ok := s.view.dir.Referrer(qp.attr.DestQPN, func(gid [16]byte) bool {
			return slices.Contains(s.fault.dialed, gid) || s.isGone(gid)
		})
		if !ok {
			break
		}
		s.fault.dialed = append(s.fault.dialed, m.GID)
		p, err := qp.pathOver(m.GID)
		if err != nil {
			break
		}
		if p.link.state.Load() == linkUp {
			qp.hca.schedule(qp) // to send the report
			return
		}
	}
	r.fault = prm.SyndromeOK
}

// targetReceives reports whether the target still receives what the QP sent over this connection.
func (qp *queuePair) targetReceives() bool {
	e := qp.req.shared.entry
	return e.Accepts(qp.attr.DestQPN, qp.qpn, &qp.hca.gidWords) && e.RQPSN.Load() == qp.attr.SQPSN
}

// sendFaultOver sends the report over a link, and returns false if there is no room. Reports may be
// repeated.
func (qp *queuePair) sendFaultOver(l *outLink) bool {
	if l.state.Load() != linkUp {
		return true
	}
	l.txLock.Lock()
	pkt := l.req.Reserve(0)
	if pkt != nil {
		pkt.Op, pkt.SrcQPN, pkt.DstQPN, pkt.MSN = ring.OpFault, qp.qpn, qp.attr.DestQPN, qp.attr.SQPSN
		pkt.Status = uint8(qp.req.fault)
		l.req.Publish(pkt)
	}
	l.txLock.Unlock()
	if pkt == nil {
		return false
	}
	call(l.ctl, l.wakeFD, attnRequest)
	return true
}
