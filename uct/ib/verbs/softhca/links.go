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
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// linkTo returns the link to a port, which it starts to dial if there is none, and
// counts one more user of it.
func (h *hca) linkTo(gid verbs.GID) (*outLink, error) {
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	if h.closing.Load() {
		return nil, ucs.ErrClosed
	}
	for _, l := range h.links {
		if l.gid == gid && l.state.Load() != linkDown {
			l.refs++
			return l, nil
		}
	}
	l := &outLink{hca: h, gid: gid, refs: 1, started: nanotime(), closeFunc: func() error { return nil }}
	h.links = append(h.links, l)
	switch {
	case h.port == nil && gid == h.gid:
		l.connectSelf()
	case h.port == nil:
		l.state.Store(linkDown) // the loop fabric has nobody else
	default:
		h.dials.Go(func() { h.dial(l) })
	}
	return l, nil
}

// unlink counts one user less, and closes a dead link that nobody uses.
func (h *hca) unlink(l *outLink) {
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	l.refs--
	if l.refs == 0 && l.state.Load() == linkDown {
		h.dispose(l)
	}
}

// dispose forgets a link. linkMu is held; nobody uses the link's memory.
func (h *hca) dispose(l *outLink) {
	h.links = slices.DeleteFunc(h.links, func(x *outLink) bool { return x == l })
	h.setOutbound(slices.DeleteFunc(slices.Clone(*h.outbound.Load()), func(x *outLink) bool { return x == l }))
	_ = l.closeFunc()
}

func (h *hca) setOutbound(list []*outLink) { h.outbound.Store(&list) }
func (h *hca) setInbound(list []*inLink)   { h.inbound.Store(&list) }

// dial brings a link up, or down. It runs on a goroutine of its own.
func (h *hca) dial(l *outLink) {
	out, err := h.port.Dial(context.Background(), l.gid)
	if err == nil {
		if err = h.enlist(l, out); err != nil {
			_ = out.Close()
		}
	}
	if err != nil {
		if !errors.Is(err, ucs.ErrClosed) {
			logger.Info("peer not reached", "device", h.cfg.Name, "peer", l.gid, "reason", err)
		}
		if !gone(err) {
			l.again = nanotime() + redialPause.Nanoseconds()
		}
		h.dropLink(l)
		return
	}
	l.releaseWaiters()
	out.AfterDown(func() {
		logger.Info("peer is gone", "device", h.cfg.Name, "peer", l.gid, "pid", l.pid)
		h.dropLink(l)
	})
}

// redialPause is how long a port that could not be dialed is left alone: one that hangs up
// at once would otherwise be dialed for each datagram. Little beside the time that
// protocols over datagrams give a peer.
const redialPause = 100 * time.Millisecond

// gone reports whether a dial that ended with err shows that later ones would too: nobody
// listens, or not for us. A peer that is too busy, or hung up, may still take us.
func gone(err error) bool {
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
func (h *hca) enlist(l *outLink, out *attach.Outbound) error {
	h.driving.lock()
	defer h.driving.unlock()
	if h.closing.Load() {
		return ucs.ErrClosed
	}
	if err := l.adopt(out); err != nil {
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
	l.hca.runLock.lock()
	l.hca.runList = append(l.hca.runList, l.waiters...)
	l.waiters = nil
	l.hca.runLock.unlock()
	l.hca.call(attnRun)
}

// dropLink marks a link as down and fails the QPs that use it.
func (h *hca) dropLink(l *outLink) {
	if l.state.Swap(linkDown) == linkDown {
		return
	}
	l.releaseWaiters()
	for i := range h.qps.slot {
		if qp := h.qps.slot[i].Load(); qp != nil && qp.service == verbs.QPTypeRC {
			qp.peerGone(l)
		}
	}
	l.unblock()
}

// peerGone fails a QP that is connected over l.
func (qp *queuePair) peerGone(l *outLink) {
	qp.exec.lock()
	if qp.req.link == l && (qp.is(verbs.QPStateRTR) || qp.is(verbs.QPStateRTS) || qp.is(verbs.QPStateSQD)) {
		qp.enterError(mlx5.SyndromeRetryExceeded, mlx5.SyndromeOK)
	}
	qp.exec.release()
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

// dropInbound forgets a peer that reached us, after what it had sent completely.
func (h *hca) dropInbound(l *inLink) {
	if l.state.Swap(linkDown) == linkDown {
		return
	}
	h.dials.Go(func() {
		if h.delist(l) {
			_ = l.closeFunc()
			h.reclaimKept()
		}
	})
}

// delist stops driving an inbound link, after what had come completely. False when
// the device is being closed.
func (h *hca) delist(l *inLink) bool {
	h.driving.lock()
	defer h.driving.unlock()
	if h.closing.Load() {
		return false
	}
	for l.reading.qp == nil && l.drainRequests() {
		yield()
	}
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	h.setInbound(slices.DeleteFunc(slices.Clone(*h.inbound.Load()), func(x *inLink) bool { return x == l }))
	return true
}
