package softhca

import (
	"slices"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/internal/softhca/internal/xrcdomain"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// sharedPeer is the shared domain of the target of an initiator, with a path for each member that
// the initiator sends to. exec of the QP protects it.
type sharedPeer struct {
	view  *domainView
	entry *table.QP // of the target
	// current is the entry of paths of which requester.path is the working copy. usePath writes the
	// copy back.
	current *path
	paths   []*path // all paths used so far, except some that are down
	// byPlace has the paths by the place of the member, the result of a lookup of an SRQ number.
	byPlace []memberPath
	fault   faultReport
}

// memberPath is the path to a member.
type memberPath struct {
	*path
	joins uint32 // xrcdomain.Member.Joins
}

// toSharedTarget reports whether the QP is an initiator whose target is in a shared domain.
func (qp *queuePair) toSharedTarget() bool {
	return qp.service == verbs.QPTypeXRCSend && qp.attr.DestQPN&xrcdomain.NumberBit != 0
}

// peerEntry returns the table entry of the peer's QP. The link must be up, and for a shared target
// findDomain must have succeeded.
func (qp *queuePair) peerEntry() *table.QP {
	if s := qp.req.shared; s != nil {
		return s.entry
	}
	return qp.req.link.table.QP(qp.attr.DestQPN)
}

// peerDestroyed reports whether the peer's QP was destroyed. The link is up.
func (qp *queuePair) peerDestroyed() bool {
	if qp.toSharedTarget() && qp.req.shared == nil {
		return false // not known before findDomain
	}
	return qp.peerEntry().Destroyed(qp.attr.DestQPN)
}

// route makes path that of the member with the SRQ of w, the work request at next. It switches to
// another member only when no message is in flight, so that messages stay in order.
func (qp *queuePair) route(w *prm.WQE) stepResult {
	r := &qp.req
	if r.shared == nil {
		if v := qp.findDomain(); v != stepDone {
			return v
		}
	}
	p := r.shared.pathOf(w.SRQN)
	if p == nil {
		var v stepResult
		if p, v = qp.dialOwner(w.SRQN); p == nil {
			return v
		}
	}
	if p != r.shared.current {
		if r.inFlight > 0 {
			return stepWait // a response schedules the QP
		}
		r.usePath(p)
	}
	r.routed = true
	return stepDone
}

// pathOf returns the path to the member with an SRQ; nil if there is no path, or the member does
// not publish such an SRQ.
func (s *sharedPeer) pathOf(srqn uint32) *path {
	place, ok := s.view.dir.SRQPlace(srqn)
	if !ok || place >= len(s.byPlace) {
		return nil
	}
	m := &s.byPlace[place]
	if m.path == nil || m.joins != s.view.dir.Joins(place) || !s.shows(m.link, srqn) {
		return nil
	}
	return m.path
}

// shows reports whether a peer publishes an SRQ of the domain.
func (s *sharedPeer) shows(l *outLink, srqn uint32) bool {
	if l.state.Load() != linkUp {
		return false
	}
	e := l.table.SRQ(srqn)
	return e.SRQN.Load() == srqn && e.Inode.Is(s.view.key)
}

// usePath makes p the path of messages.
func (r *requester) usePath(p *path) {
	*r.shared.current = r.path
	r.shared.current, r.path = p, *p
}

// dialOwner returns the path to the member with an SRQ, which it dials if needed, when no message is
// in flight. If the member is not reached, or not yet, it returns nil and the result of the step.
func (qp *queuePair) dialOwner(srqn uint32) (*path, stepResult) {
	if qp.req.inFlight > 0 {
		return nil, stepWait // a response schedules the QP
	}
	s := qp.req.shared
	place, _ := s.view.dir.SRQPlace(srqn)
	m, ok := s.view.dir.SRQOwner(srqn)
	if !ok {
		return nil, qp.noQueue(s.view.dir.SRQDied(srqn))
	}
	p, err := qp.pathTo(place, m)
	if err != nil {
		return nil, qp.failNext(prm.SyndromeRetryExceeded)
	}
	switch p.link.state.Load() {
	case linkDialing:
		return nil, qp.awaitLink(p.link)
	case linkDown:
		if end := linkEnd(p.link.end.Load()); end != endBusy {
			return nil, qp.noQueue(end != endClosed)
		}
		return nil, qp.failWithPeer(prm.SyndromeRemoteOp) // the message was not sent, and the member may be alive
	}
	if !s.shows(p.link, srqn) {
		return nil, qp.noQueue(s.view.dir.SRQDied(srqn))
	}
	return p, stepDone
}

// noQueue fails the work request at next, as no device of the domain has its SRQ. died: the process
// that had it is dead.
func (qp *queuePair) noQueue(died bool) stepResult {
	qp.req.died = died
	return qp.failWithPeer(prm.SyndromeRemoteInvalidReq)
}

// pathTo returns the path to a member. The message numbers of a path to a new member start with the
// first one of the connection, as its responder expects. No message is in flight.
func (qp *queuePair) pathTo(place int, m xrcdomain.Member) (*path, error) {
	s := qp.req.shared
	for len(s.byPlace) <= place {
		s.byPlace = append(s.byPlace, memberPath{})
	}
	at := &s.byPlace[place]
	if at.path != nil && at.joins == m.Joins && at.link.gid == verbs.GID(m.GID) {
		return at.path, nil
	}
	p, err := qp.pathOver(m.GID)
	if err != nil {
		return nil, err
	}
	p.msn = qp.attr.SQPSN
	if p == s.current {
		qp.req.msn = p.msn
	}
	*at = memberPath{path: p, joins: m.Joins}
	return p, nil
}

// pathOver returns the path to a device, which it dials if needed.
func (qp *queuePair) pathOver(gid verbs.GID) (*path, error) {
	s := qp.req.shared
	if i := slices.IndexFunc(s.paths, func(p *path) bool { return p.link.gid == gid }); i >= 0 {
		return s.paths[i], nil
	}
	l, err := qp.hca.linkTo(gid)
	if err != nil {
		return nil, err
	}
	p := &path{link: l}
	s.paths = append(slices.DeleteFunc(s.paths, func(p *path) bool {
		return p != s.current && p.link.state.Load() == linkDown
	}), p)
	return p, nil
}

// handleMemberGone releases a link that has gone down. The QP fails if a message to that member was
// in flight, or if no other member refers to its target. exec is held.
func (qp *queuePair) handleMemberGone(l *outLink) {
	r := &qp.req
	s := r.shared
	if !slices.ContainsFunc(s.paths, func(p *path) bool { return p.link == l }) {
		return
	}
	switch sending := r.link == l && (r.inFlight > 0 || r.routed); {
	case !s.view.dir.Referred(qp.attr.DestQPN, s.isGone):
		qp.failOnMember(l, prm.SyndromeRetryExceeded, prm.SyndromeOK)
	case sending && linkEnd(l.end.Load()) == endBroken:
		qp.failOnMember(l, prm.SyndromeRetryExceeded, prm.SyndromeOK)
	case sending:
		r.died = linkEnd(l.end.Load()) != endClosed
		qp.failOnMember(l, prm.SyndromeRemoteInvalidReq, prm.SyndromeRemoteInvalidReq)
	case r.link == l:
		r.usePath(&path{link: l}) // until the next message
	}
	for _, p := range s.paths {
		if p.link == l {
			p.releaseGuard()
		}
	}
	if r.fault != prm.SyndromeOK {
		s.fault.reported = false
		qp.hca.schedule(qp) // for notifyAnother
	}
}

// failOnMember fails the QP after a link has gone down: the QP with syn, and its peer with the syndrome peer.
// A queue of a dead member is rejected like a closed queue: with hardware the kernel closes it.
func (qp *queuePair) failOnMember(l *outLink, syn, peer prm.Syndrome) {
	r := &qp.req
	qp.stopStarving()
	r.usePath(&path{link: l}) // peerVendorErr reads its end
	if table.Receiving(qp.loadState()) {
		qp.enterError(syn, peer)
	}
}

// isGone reports whether a device has hung up.
func (s *sharedPeer) isGone(gid [16]byte) bool {
	return slices.ContainsFunc(s.paths, func(p *path) bool {
		end := linkEnd(p.link.end.Load())
		return p.link.gid == verbs.GID(gid) && (end == endGone || end == endClosed || end == endBroken)
	})
}

// releaseShared releases the guards of all paths to members but the current one, and the views of
// the QP. exec is held.
func (qp *queuePair) releaseShared() {
	r := &qp.req
	if s := r.shared; s != nil {
		for _, p := range s.paths {
			if p != s.current {
				p.releaseGuard()
			}
		}
		r.shared, r.routed = nil, false
	}
	for _, v := range r.views {
		qp.hca.views.release(v)
	}
	r.views = nil
}
