package xrccore

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// initiator posts the work requests of all paths to a domain, in the order in which the paths
// posted them. It stores a copy of each until the work request completes.
//
//	head ......... posted ......... tail
//	 in the device        held back,
//	                      while waiting
//
// All are signaled, so each has a completion, and the completions arrive in order.
type initiator struct {
	n            *node
	id           uint32 // in n.all
	remoteDomain rcwire.Domain
	qp           *verbs.QP
	send         rccore.SendQueue // of qp
	psn          uint32           // first PSN
	room         int              // unreserved places in the send queue
	users        int              // paths
	phase        phase
	// epoch distinguishes completions from those of earlier connections.
	epoch  uint32
	ring   []savedWR
	head   uint64
	posted uint64
	tail   uint64
	target uint32          // QPN of the connected target
	offer  offer           // offer of another target
	limit  timelimit.Limit // of the wait for an offer, or for the event
	cause  ucs.Status
	local  *verbs.QP // target of an initiator to the own domain; otherwise nil
}

// phase determines what happens to posted work requests.
type phase uint8

const (
	phaseUp      phase = iota // the device executes them
	phaseWaiting              // they are held back until an EP in the remote domain offers a target
	phaseFlushed              // the device flushes them; the event with the cause has not arrived
	phaseFailed               // the QP stays in ERR: the device flushes them
)

// savedWR is a copy of a work request, with its SGEs and inline data.
type savedWR struct {
	p      *path
	id     uint64 // of p.e
	wr     [1]verbs.SendWR
	sges   []verbs.SGE
	inline []byte
}

// offer is a target that a peer has created for the initiator.
type offer struct {
	p   *path // received the offer; nil: no offer
	qpn uint32
	psn uint32
}

// newInitiator creates an initiator that is not connected.
func (n *node) newInitiator(psn uint32) (*initiator, error) {
	qp, err := n.it.CreateQP(verbs.QPTypeXRCSend)
	if err != nil {
		return nil, err
	}
	send, err := n.it.poster.OpenSend(qp)
	if err != nil {
		return nil, errors.Join(err, n.it.CloseQP(qp))
	}
	cfg := n.it.Iface.Config()
	in := &initiator{n: n, qp: qp, send: send, psn: psn, room: cfg.TxDepth, ring: make([]savedWR, cfg.TxDepth)}
	sges, inline := make([]verbs.SGE, cfg.TxDepth*cfg.TxMaxSGE), make([]byte, cfg.TxDepth*n.it.MaxInline)
	for i := range in.ring {
		s := &in.ring[i]
		s.sges, sges = sges[:0:cfg.TxMaxSGE], sges[cfg.TxMaxSGE:]
		s.inline, inline = inline[:0:n.it.MaxInline], inline[n.it.MaxInline:]
	}
	in.id = n.all.add(in)
	return in, nil
}

func (in *initiator) at(i uint64) *savedWR { return &in.ring[i%uint64(len(in.ring))] }

// post posts a work request of a path. The path must have reserved a place.
func (in *initiator) post(p *path, w *verbs.SendWR) error {
	s := in.at(in.tail)
	s.p, s.id, s.wr[0] = p, w.ID, *w
	s.wr[0].Flags |= verbs.SendSignaled
	if w.Flags&verbs.SendInline != 0 {
		s.wr[0].SGList, s.wr[0].Inline = nil, append(s.inline, w.Inline...)
	} else {
		s.wr[0].SGList = append(s.sges, w.SGList...)
	}
	in.tail++
	if in.phase == phaseWaiting {
		return nil
	}
	return in.postSaved()
}

// postSaved posts the work requests that are held back.
func (in *initiator) postSaved() error {
	for ; in.posted != in.tail; in.posted++ {
		w := &in.at(in.posted).wr
		w[0].ID = uint64(in.id)<<32 | uint64(in.epoch)
		if _, err := in.send.PostSend(w[:]); err != nil {
			return err
		}
	}
	return nil
}

// handleCompletion handles the completion of the oldest work request: it replaces QPN and ID by those of the EP.
func (in *initiator) handleCompletion(c *verbs.WC) {
	s := in.at(in.head)
	in.head++
	p := s.p
	s.p = nil
	c.QPN, c.ID = uint32(p.number), s.id
	if c.Status != verbs.WCSuccess && in.phase == phaseUp {
		in.handleFailure(c)
	}
	if c.Status == verbs.WCRemInvReqErr { // the SRQ does not exist: the peer's iface is closed, or its process dead
		if c.VendorErr != verbs.VendorPeerGone {
			c.VendorErr = verbs.VendorPeerClosed
		}
		c.Status, p.peerInformed = verbs.WCRetryExcErr, true
	}
}

// handleFailure handles the first failed work request. If the target has rejected it, the target is in ERR
// too, and no later work request was executed: the initiator holds the later ones back, and posts
// them to another target, which a peer offers. In all other cases it is unknown which work requests
// were executed and whether the peers are alive: the EPs of all paths fail. If the work request was
// flushed, the device had stopped the QP before, and an event reports the cause (node.HandleFault).
func (in *initiator) handleFailure(c *verbs.WC) {
	switch c.Status {
	case verbs.WCWRFlushErr:
		in.phase, in.limit = phaseFlushed, timelimit.New(rccore.EventLimit)
		in.n.recovering = append(in.n.recovering, in)
		return
	case verbs.WCRemInvReqErr, verbs.WCRemAccessErr, verbs.WCRemOpErr:
		if in.users > 1 {
			in.holdBack()
			return
		}
	}
	switch cause := ib.CompletionStatus(c); cause {
	case ucs.StatusPeerClosed, ucs.StatusTimedOut:
		in.fail(cause)
	default:
		in.fail(ucs.StatusConnReset)
	}
}

// holdBack makes the initiator hold back work requests. It starts a new epoch: completions of flushed work
// requests belong to the previous one and are dropped.
func (in *initiator) holdBack() {
	cfg := in.n.it.Iface.Config()
	in.phase, in.posted = phaseWaiting, in.head
	in.epoch++
	in.limit = timelimit.New(time.Duration(cfg.RetryCount+1) * cfg.Timeout)
	in.n.recovering = append(in.n.recovering, in)
}

// handleOffer accepts the first offer that replaces the connected target. It may arrive before the
// completion of the failure. An offer that replaces an earlier target is too late and has no
// effect.
func (in *initiator) handleOffer(o offer, lost uint32) {
	if in.offer.p == nil && lost == in.target {
		in.offer = o
	}
}

// fail moves the QP to ERR and makes work fail all paths. New paths do not use the initiator.
func (in *initiator) fail(cause ucs.Status) {
	if in.phase == phaseFailed {
		return
	}
	if in.phase == phaseUp {
		in.n.recovering = append(in.n.recovering, in)
	}
	in.phase, in.cause = phaseFailed, cause
	if in.n.initiators[in.remoteDomain] == in {
		delete(in.n.initiators, in.remoteDomain)
	}
	_ = in.n.it.QPToERR(in.qp) // if the device refuses, it flushes nothing either; Close has a time limit
	_ = in.postSaved()         // posts the rest, so that the device flushes it
}

// failAfterCQError fails the initiator after an error of the completion queue, and drops all work requests.
func (in *initiator) failAfterCQError() {
	in.fail(ucs.StatusIOError)
	_ = in.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState) // if the device refuses, the whole device has failed
	in.n.it.poster.ResetSend(in.send)
	for ; in.head != in.tail; in.head++ {
		in.at(in.head).p = nil
	}
	in.posted = in.tail
}

// dropClosed removes the held-back work requests of failed and closed EPs, and cancels their operations.
func (in *initiator) dropClosed() {
	kept := in.head
	for i := in.head; i != in.tail; i++ {
		if s := in.at(i); !s.p.inactive {
			k := in.at(kept)
			*k, *s = *s, *k
			kept++
		}
	}
	in.tail = kept
	for _, p := range in.paths() {
		if p.inactive {
			p.e.CancelOps()
		}
	}
}

// paths returns the paths that use the initiator.
func (in *initiator) paths() (list []*path) {
	for _, p := range in.n.paths {
		if p != nil && p.initiator == in {
			list = append(list, p)
		}
	}
	return list
}

// work continues after a failure. It returns true if the initiator has no more work.
func (in *initiator) work() (done bool) {
	if in.users == 0 {
		return true // it is closed
	}
	if in.phase == phaseWaiting {
		in.dropClosed()
		cause := ucs.StatusTimedOut // the peers may be alive and reachable by another transport
		switch {
		case in.offer.p != nil || in.isLocal():
			if err := in.reconnect(); err == nil {
				return true
			}
			cause = ucs.StatusConnReset
		case !in.n.closing && !in.limit.Over():
			return false
		}
		in.fail(cause)
	}
	if in.phase == phaseFlushed {
		if !in.n.closing && !in.limit.Over() {
			return false
		}
		in.fail(ucs.StatusConnReset)
	}
	for _, p := range in.paths() {
		if p.e.Ready() {
			p.e.Fail(in.cause, errInitiator)
		}
	}
	return true
}

// reconnect connects to the offered target, or to the own target, and posts the held-back work requests.
func (in *initiator) reconnect() error {
	it, o := in.n.it, in.offer
	if err := in.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState); err != nil {
		return err
	}
	it.poster.ResetSend(in.send)
	if err := it.ToInit(in.qp); err != nil {
		return err
	}
	if in.isLocal() {
		if err := in.connectLocal(rand.Uint32() & maxPSN); err != nil {
			return err
		}
	} else if err := in.connect(o.p, o.qpn, o.psn); err != nil {
		return err
	}
	in.phase, in.offer = phaseUp, offer{}
	for _, p := range in.paths() {
		p.handleReconnect(p == o.p)
	}
	return in.postSaved()
}

// connect moves the QP from INIT to RTS, connected to a target from the peer of a path.
func (in *initiator) connect(p *path, target, psn uint32) error {
	peer := p.peerAddr.EPAddr
	peer.QPN, peer.PSN = target, 0 // the target sends no requests
	in.target = target
	if err := in.n.it.ToRTR(in.qp, p.dev, peer); err != nil {
		return err
	}
	return in.n.it.ToRTS(in.qp, psn, peer.MaxReads)
}

// isLocal reports whether the initiator connects to the own domain. Then this iface creates the target,
// closes it with the initiator, and connects it again without the peers.
func (in *initiator) isLocal() bool { return in.remoteDomain == in.n.domain.ID }

// connectLocal moves the QP from INIT to RTS, connected to a target that this iface creates.
func (in *initiator) connectLocal(psn uint32) (err error) {
	it := in.n.it
	if in.local == nil {
		in.local, err = in.n.newTarget()
	} else if err = in.local.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState); err == nil {
		err = it.ToInit(in.local)
	}
	if err != nil {
		return err
	}
	here, mtu, reads := it.Port().Addr, it.Port().Attr.ActiveMTU, uint8(it.Iface.Config().MaxRDAtomic)
	if err := it.ToRTR(in.local, here, rcwire.EPAddr{MTU: mtu, QPN: in.qp.Number(), PSN: psn}); err != nil {
		return err
	}
	if err := it.ToRTR(in.qp, here, rcwire.EPAddr{MTU: mtu, QPN: in.local.Number()}); err != nil {
		return err
	}
	return it.ToRTS(in.qp, psn, reads)
}

// removePath removes a path from the initiator, and closes the initiator after the last path. After an error
// the path still uses the initiator.
func (in *initiator) removePath() error {
	if in.users > 1 {
		in.users--
		return nil
	}
	if in.n.initiators[in.remoteDomain] == in {
		delete(in.n.initiators, in.remoteDomain)
	}
	if err := in.n.it.CloseQP(in.qp); err != nil {
		return err
	}
	if in.users == 1 { // otherwise only the target is still open
		in.users = 0
		in.n.all.remove(in.id)
		in.n.it.poster.CloseSend(in.send)
	}
	if in.local != nil {
		return in.local.Close()
	}
	return nil
}
