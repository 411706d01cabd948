package softhca

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/log"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// linkTo returns the link to a port. If no link is up or being dialed, it starts to dial one.
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

// unmapLink removes a link that is down from the lists and unmaps the memory of the peer. No QP
// uses it any more. driving is not held.
func (h *hca) unmapLink(l *outLink) {
	isIt := func(x *outLink) bool { return x == l }
	h.driving.Lock()
	h.linkMu.Lock()
	h.links = slices.DeleteFunc(h.links, isIt)
	h.setOutbound(slices.DeleteFunc(slices.Clone(*h.outbound.Load()), isIt))
	h.linkMu.Unlock()
	h.driving.Unlock()
	_ = l.closeFunc() // unmapping mapped memory does not fail
	if linkEnd(l.end.Load()) != endBusy {
		h.reportIfGone(table.GIDWords(l.gid))
	}
}

func (h *hca) setOutbound(list []*outLink) { h.outbound.Store(&list) }
func (h *hca) setInbound(list []*inLink)   { h.inbound.Store(&list) }

// dial brings a link up, or down if the peer is not reached. It runs on a separate goroutine.
func (h *hca) dial(l *outLink) {
	out, err := h.port.Dial(context.Background(), l.gid)
	if err == nil {
		if err = h.addOutbound(l, out); err != nil && !errors.Is(err, ucs.ErrClosed) {
			_ = out.Close() // closes only this link; after ErrClosed the port closes it with the device
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

// hangUpReason returns why a peer has hung up, according to its table, which must still be
// mapped.
func (h *hca) hangUpReason(l *outLink) linkEnd {
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	if slices.Contains(*h.outbound.Load(), l) && l.table.Closed().Load() != 0 {
		return endClosed
	}
	return endGone
}

// redialPause is the time after which a port that was not reached is dialed again. Without it,
// each datagram would dial. It is short compared with the timeouts of protocols over datagrams.
const redialPause = 100 * time.Millisecond

// isPermanent reports whether later dials would fail like the one with err: no process listens, or
// it does not accept this one. A peer that is too busy, or has hung up, may accept a later dial.
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

// addOutbound adds a dialed link to those that the device drives. ErrClosed if the device is being
// closed, ErrInvalidAddr if the segments of the peer are not valid.
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

// goDown puts a link into linkDown, so that no QP begins to use it; false if it was down before.
func (l *outLink) goDown(end linkEnd) bool {
	if !l.end.CompareAndSwap(uint32(endNone), uint32(end)) {
		return false
	}
	l.again.Store(nanotime() + redialPause.Nanoseconds())
	l.state.Store(linkDown)
	return true
}

// dropLink takes a link down, fails the QPs that use it and unmaps its memory. driving is not
// held.
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

// reject takes a link down after a malformed response of the peer. driving is held.
func (l *outLink) reject() {
	if l.goDown(endBroken) {
		l.hca.failUsers(l)
		l.hca.dials.Go(func() { l.hca.unmapLink(l) })
	}
}

// handlePeerGone fails a QP that is connected over l. On return no QP uses l, also one that sends
// datagrams.
func (qp *queuePair) handlePeerGone(l *outLink) {
	qp.exec.Lock()
	if qp.req.shared != nil {
		qp.handleMemberGone(l)
	} else if qp.req.link == l {
		qp.failUnlinked()
	}
	qp.exec.Release()
}

// failUnlinked fails a QP whose link has gone down. A QP in RTR does not fail before it sends:
// with hardware such a peer is only silent, and the code that connects a QP expects the state that
// it has set. exec is held.
func (qp *queuePair) failUnlinked() {
	if table.Receiving(qp.loadState()) && !qp.is(verbs.QPStateRTR) {
		qp.enterError(prm.SyndromeRetryExceeded, prm.SyndromeOK)
	}
}

// accept adds an inbound link.
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

// dropInbound removes a link whose peer has hung up, after it has handled the complete packets in
// the ring. The peer is dead, or no longer accesses our memory over the link. If the device of the
// peer still exists and has closed only the link, nothing else fails.
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

// reject hangs up a link after a malformed request of the peer. The peer may be in the middle of
// an access: its guards are respected until it hangs up too. driving is held.
func (l *inLink) reject() {
	l.rejected = true
	l.hangUp()
}

// removeInbound removes an inbound link from those that the device drives, after it has handled
// the complete packets. False if the device is being closed.
func (h *hca) removeInbound(l *inLink) bool {
	h.driving.Lock()
	defer h.driving.Unlock()
	if h.closing.Load() {
		return false
	}
	l.drainRest()
	l.eachNotice(l.handleNotice) // also those behind a read whose response ring is full
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	h.setInbound(slices.DeleteFunc(slices.Clone(*h.inbound.Load()), func(x *inLink) bool { return x == l }))
	return true
}

// failTargets fails the XRC targets whose initiators are of a device that is gone, and destroys
// the responders of targets that are gone too.
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
