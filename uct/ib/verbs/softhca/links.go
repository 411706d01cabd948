package softhca

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/log"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/table"
)

// linkTo returns the link to a port, which it starts to dial if there is none that is up.
func (h *hca) linkTo(gid verbs.GID) (*outLink, error) {
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	if h.closing.Load() {
		return nil, ucs.ErrClosed
	}
	for _, l := range h.links {
		if l.gid == gid && l.state.Load() != linkDown {
			return l, nil
		}
	}
	l := &outLink{hca: h, gid: gid, started: nanotime(), closeFunc: func() error { return nil }}
	h.links = append(h.links, l)
	switch {
	case h.port == nil && gid == h.gid:
		l.connectSelf()
	case h.port == nil: // the loop fabric has no other devices
		l.goDown(endGone)
		h.links = h.links[:len(h.links)-1]
	default:
		h.dials.Go(func() { h.dial(l) })
	}
	return l, nil
}

// dispose forgets a link that is down and unmaps what the peer gave. No QP uses it any
// more, and no goroutine drives it here. driving is not held.
func (h *hca) unmapLink(l *outLink) {
	isIt := func(x *outLink) bool { return x == l }
	h.driving.Lock()
	h.linkMu.Lock()
	h.links = slices.DeleteFunc(h.links, isIt)
	h.setOutbound(slices.DeleteFunc(slices.Clone(*h.outbound.Load()), isIt))
	h.linkMu.Unlock()
	h.driving.Unlock()
	_ = l.closeFunc() // unmapping what is mapped does not fail
	if linkEnd(l.end.Load()) != endBusy {
		h.reportIfGone(table.GIDWords(l.gid))
	}
}

func (h *hca) setOutbound(list []*outLink) { h.outbound.Store(&list) }
func (h *hca) setInbound(list []*inLink)   { h.inbound.Store(&list) }

// dial brings a link up, or down. It runs on a goroutine of its own.
func (h *hca) dial(l *outLink) {
	out, err := h.port.Dial(context.Background(), l.gid)
	if err == nil {
		if err = h.addOutbound(l, out); err != nil && !errors.Is(err, ucs.ErrClosed) {
			_ = out.Close() // else the port does, without the word that it stays
		}
	}
	if err != nil {
		if !errors.Is(err, ucs.ErrClosed) {
			logger.Info("peer not reached", "device", h.cfg.Name, "peer", l.gid, "reason", err)
		}
		end := endBusy
		if isPermanent(err) {
			end = endGone
		}
		h.dropLink(l, end)
		return
	}
	l.releaseWaiters()
	out.AfterDown(func() {
		logger.Info("peer is gone", "device", h.cfg.Name, "peer", l.gid, "pid", l.pid)
		h.dropLink(l, h.hangUpReason(l))
	})
}

// departure tells how a peer went that has hung up: by what its table says, as long as it
// is mapped.
func (h *hca) hangUpReason(l *outLink) linkEnd {
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	if slices.Contains(*h.outbound.Load(), l) && l.table.Closed().Load() != 0 {
		return endClosed
	}
	return endGone
}

// redialPause is how long a port that is not reached is left alone: it would otherwise be
// dialed for each datagram. Little beside the time that
// protocols over datagrams give a peer.
const redialPause = 100 * time.Millisecond

// gone reports whether a dial that ended with err shows that later ones would too: nobody
// listens, or not for us. A peer that is too busy, or hung up, may still take us.
func isPermanent(err error) bool {
	var refused *attach.RefusedError
	if errors.As(err, &refused) {
		return refused.Reason != attach.ReasonLimit
	}
	for _, final := range []error{ucs.ErrUnreachable, ucs.ErrInvalidAddr, attach.ErrForeignUser, attach.ErrProtocol} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

var logger = log.For("softhca")

// enlist makes a dialed link one that is driven. ErrClosed when the device is being
// closed, ErrInvalidAddr when the peer's segments are not what they should be.
func (h *hca) addOutbound(l *outLink, out *attach.Outbound) error {
	h.driving.Lock()
	defer h.driving.Unlock()
	if h.closing.Load() {
		return ucs.ErrClosed
	}
	if err := l.attach(out); err != nil {
		return err
	}
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	h.setOutbound(append(slices.Clone(*h.outbound.Load()), l))
	l.state.Store(linkUp)
	return nil
}

// releaseWaiters schedules the QPs that waited for the end of dialing.
func (l *outLink) releaseWaiters() {
	l.hca.runLock.Lock()
	l.hca.runList = append(l.hca.runList, l.waiters...)
	l.waiters = nil
	l.hca.runLock.Unlock()
	l.hca.call(attnRun)
}

// goDown ends a link; false if it has ended before. Nobody begins to use it.
func (l *outLink) goDown(end linkEnd) bool {
	if !l.end.CompareAndSwap(uint32(endNone), uint32(end)) {
		return false
	}
	l.again.Store(nanotime() + redialPause.Nanoseconds())
	l.state.Store(linkDown)
	return true
}

// dropLink ends a link, fails the QPs that use it and gives its memory back. driving is
// not held.
func (h *hca) dropLink(l *outLink, end linkEnd) {
	if l.goDown(end) {
		h.failUsers(l)
		h.unmapLink(l)
	}
}

// failUsers fails the QPs that use a link that has gone down. On return no QP uses it.
func (h *hca) failUsers(l *outLink) {
	l.releaseWaiters()
	h.eachQP(func(qp *queuePair) { qp.handlePeerGone(l) })
	l.unblock()
	l.scheduleStarving()
}

// reject ends a link on which the peer has answered what is no packet. driving is held.
func (l *outLink) reject() {
	if l.goDown(endBroken) {
		l.hca.failUsers(l)
		l.hca.dials.Go(func() { l.hca.unmapLink(l) })
	}
}

// handlePeerGone fails a QP that is connected over l. On return the QP does not use l, also if it
// sends datagrams.
func (qp *queuePair) handlePeerGone(l *outLink) {
	qp.exec.Lock()
	if qp.req.shared != nil {
		qp.handleMemberGone(l)
	} else if qp.req.link == l {
		qp.failUnlinked()
	}
	qp.exec.Release()
}

// failUnlinked fails a QP whose link has gone down. One in RTR is left alone until it is to
// send: to hardware the peer is silent, and who connects a QP finds the state that it set. exec
// is held.
func (qp *queuePair) failUnlinked() {
	if table.Receiving(qp.loadState()) && !qp.is(verbs.QPStateRTR) {
		qp.enterError(prm.SyndromeRetryExceeded, prm.SyndromeOK)
	}
}

// accept takes over an inbound link.
func (h *hca) accept(in *attach.Inbound) error {
	l, err := newInLink(h, in)
	if err != nil {
		return err
	}
	h.linkMu.Lock()
	if h.closing.Load() {
		h.linkMu.Unlock()
		return ucs.ErrClosed
	}
	h.setInbound(append(slices.Clone(*h.inbound.Load()), l))
	h.linkMu.Unlock()
	in.AfterDown(func() { h.dropInbound(l) })
	return nil
}

// dropInbound forgets a link whose peer has hung up, after what it had sent completely: it is
// dead, or does not access our memory over it any more. Nothing else ends where the peer's
// device is there still and has ended the link alone.
func (h *hca) dropInbound(l *inLink) {
	if l.state.Swap(linkDown) == linkDown {
		return
	}
	h.dials.Go(func() {
		if !h.removeInbound(l) {
			return
		}
		gone := l.rejected || !l.peerStays()
		_ = l.closeFunc()
		h.owner.Reclaim()
		h.releaseClaims()
		if gone {
			h.failTargets(l.gid)
			h.reportIfGone(l.gid)
		}
	})
}

// reject ends a link on which the peer has sent what is no packet. The peer may be in the
// middle of an access: its guards are watched until it hangs up too. driving is held.
func (l *inLink) reject() {
	l.rejected = true
	l.hangUp()
}

// delist stops driving an inbound link, after what had come completely. False when
// the device is being closed.
func (h *hca) removeInbound(l *inLink) bool {
	h.driving.Lock()
	defer h.driving.Unlock()
	if h.closing.Load() {
		return false
	}
	l.drainRest()
	l.eachNotice(l.handleNotice) // also behind a request that the peer is no more there for
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	h.setInbound(slices.DeleteFunc(slices.Clone(*h.inbound.Load()), func(x *inLink) bool { return x == l }))
	return true
}

// failTargets fails the XRC targets whose initiators are of a device that is gone. What had
// arrived for those that are gone too is given up.
func (h *hca) failTargets(gid [2]uint64) {
	h.driving.Lock() // no target is destroyed meanwhile
	defer h.driving.Unlock()
	h.eachQP(func(qp *queuePair) {
		if qp.domain == nil || qp.replaced() {
			return
		}
		qp.sync()
		if table.Receiving(qp.loadState()) && qp.peer() == gid {
			qp.exec.Lock()
			qp.enterError(prm.SyndromeRetryExceeded, prm.SyndromeOK)
			qp.exec.Release()
		}
	})
	h.failShared(gid)
	h.dropResponders((*queuePair).replaced)
}
