package ucpgroup

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// NoticeID is the id of the active messages by which ranks notify each other of the failure of the
// group.
const NoticeID = 0xfffe

// failure is the state of a group that accepts no more operations.
type failure struct {
	failed         error
	found          bool          // this rank has detected the failure, and notifies all others
	noticeDue      bool          // operations must be failed, and other ranks notified
	closesDue      bool          // endpoints must be closed
	closesDueSince time.Time     // when closesDue was first set
	waits          time.Duration // limit of the wait until ranks know of the failure; noticeLimit
	notice         [noticeLen]byte
}

// A notice is valid only if it is from the worker of the rank that it names as its sender. It is little-endian: the
// sending rank and the rank that has died or failed, in
// 4 bytes each, and the status. A rank that receives a notice replies with a notice, unless it has already sent one. So
// each rank knows that the other one knows of the failure.
const noticeLen = 9

// noticeLimit limits how long Close, and operations to a rank, wait until that rank has received the
// notice. A rank that waits receives it much sooner. A rank that computes or is
// stopped may not receive it at all. A live process on an overloaded machine took more than 1 s; a job
// kills its ranks after 10 s.
const noticeLimit = 5 * time.Second

// lost is called when an EP has failed. If the rank has disconnected gracefully, only operations with that rank fail.
// Otherwise the group fails. Package ucp calls it in a callback.
func (g *Group) lost(q int, err error) {
	if g.peers[q].gone != nil {
		return
	}
	g.peers[q].gone = &RankError{q, err}
	g.noticeDue = true
	if !errors.Is(err, ucs.ErrPeerClosed) {
		g.fail(g.peers[q].gone)
	}
}

// findLost checks for failed EPs after an operation has failed with err. Package ucp reports them only in the next
// Progress.
func (g *Group) findLost(err error) {
	if !errors.Is(err, ucs.ErrEPFailed) {
		return
	}
	for q := range g.peers {
		if p := &g.peers[q]; p.gone == nil && p.ep.Err() != nil {
			g.lost(q, p.ep.Err())
		}
	}
}

// fail records that this rank has detected a failure of the group. The next step fails the operations.
func (g *Group) fail(err error) {
	if g.failed == nil {
		g.failed, g.found, g.noticeDue = opError("group failed", err), true, true
	}
}

// handleNotice fails the group with the reason in the notice of another rank. It rejects a notice that is not from
// the worker of that rank.
func (g *Group) handleNotice(m *ucp.ActiveMessage) {
	from, why := g.parseNotice(m.Data)
	if why == nil || !m.From.SamePeer(g.peers[from].ep) {
		m.Reject()
		return
	}
	p := &g.peers[from]
	p.knows, p.used, g.noticeDue = true, true, true
	if g.failed == nil {
		g.failed = opError("group failed", why)
	}
}

// parseNotice returns the rank that has sent a notice, and the reason of the failure; nil if the notice
// is malformed.
func (g *Group) parseNotice(b []byte) (from int, why *RankError) {
	if len(b) != noticeLen {
		return 0, nil
	}
	sender, rank, st := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), ucs.Status(b[8])
	n := uint64(len(g.peers))
	if uint64(sender) >= n || uint64(rank) >= n || st.Err() == nil {
		return 0, nil
	}
	return int(sender), &RankError{int(rank), st.Err()}
}

// endFailed fails the operations that wait for a disconnected rank, or all operations if the group has failed.
// It also notifies other ranks. If this rank has detected the failure, it notifies all of them. Otherwise
// it notifies those that it has exchanged messages with: they may see this rank close its endpoints
// before they receive the notice of the rank that has detected the failure.
func (g *Group) endFailed() {
	g.noticeDue = false
	if g.failed != nil {
		g.sendNotices()
	}
	for r := g.pending.first; r != nil; r = r.next { // abort releases no request: Progress calls OnDone
		r.abortIfDead()
	}
	g.abortSchedules()
}

// sendNotices sends a notice to each connected rank that must be notified.
func (g *Group) sendNotices() {
	rank := g.rank
	var gone *RankError
	if errors.As(g.failed, &gone) {
		rank = gone.Rank
	}
	binary.LittleEndian.PutUint32(g.notice[:], uint32(g.rank))
	binary.LittleEndian.PutUint32(g.notice[4:], uint32(rank))
	g.notice[8] = byte(wireStatus(g.failed))
	for q := range g.peers {
		p := &g.peers[q]
		if q == g.rank || q == rank || p.gone != nil || p.notified || !g.found && !p.used {
			continue
		}
		p.notified = true
		if r, err := p.ep.SendActive(NoticeID, nil, g.notice[:], nil); err == nil {
			p.notice = r
		}
	}
}

// scheduleClose makes step close the endpoint to a rank after the group has failed, when the rank knows of the failure.
func (g *Group) scheduleClose(q int) {
	g.peers[q].closeDue, g.closesDue = true, true
	if g.closesDueSince.IsZero() {
		g.closesDueSince = time.Now()
	}
}

// closeDueEPs closes the endpoints that are scheduled for it, to ranks that know of the failure or have not replied for
// noticeLimit.
func (g *Group) closeDueEPs() {
	g.closesDue = false
	late := time.Since(g.closesDueSince) >= g.waits
	for q := range g.peers {
		p := &g.peers[q]
		switch {
		case !p.closeDue:
			continue
		case p.notified && p.uninformed() && !late:
			g.closesDue = true
			continue
		}
		p.closeDue = false
		p.release()
		if p.gone == nil {
			p.gone = g.failed
		}
		if r, err := p.ep.Close(ucp.CloseForce); err == nil && r != nil {
			r.Release()
		}
	}
}

// uninformed reports whether the rank may not know of the failure yet and can still be notified.
func (p *peer) uninformed() bool { return p.gone == nil && !p.knows }

// release releases the request of a notice.
func (p *peer) release() {
	if p.notice != nil {
		p.notice.Release()
		p.notice = nil
	}
}

// awaitNotified waits until the notified ranks know of the failure, at most for noticeLimit.
func (g *Group) awaitNotified(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.waits)
	defer cancel()
	_ = g.w.Until(ctx, func() bool { // if ctx is done, they may not know
		g.step()
		for q := range g.peers {
			if p := &g.peers[q]; p.notified && p.uninformed() {
				return false
			}
		}
		return true
	})
	for q := range g.peers {
		g.peers[q].release()
	}
}
