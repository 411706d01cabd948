package ucpgroup

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// NoticeID is the id of the active messages by which ranks tell each other why the group has
// failed.
const NoticeID = 0xfffe

// failure is why a group takes no more operations.
type failure struct {
	failed    error
	found     bool          // this rank has found it, and tells all others
	noticeDue bool          // operations are to be ended, and others to be told
	hangDue   bool          // endpoints are to be closed
	hangSince time.Time     // when that was first so
	waits     time.Duration // for ranks to know; noticeLimit
	notice    [noticeLen]byte
}

// A notice counts only if it has come from the worker of the rank that sends it. It is little-endian: the rank that sends it and the one that is gone, or has failed, in
// 4 bytes each, and the status. Who gets one sends one back, if it has not sent one already: so
// each knows that the other knows.
const noticeLen = 9

// noticeLimit is how long Close, and operations to a rank, wait until that rank has read why the
// group failed. A rank that waits for something reads it far sooner. One that computes or is
// stopped may not read it at all. A live process on an overloaded machine took more than 1 s; a job
// kills its ranks after 10 s.
const noticeLimit = 5 * time.Second

// lost is told that an EP has failed. A rank that has left in order takes its messages with it;
// any other end is that of the group. It is called from within package ucp.
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

// findLost looks for EPs that have failed, of which package ucp will only tell at the next
// progress, after an operation has ended with err.
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

// fail ends the group as this rank has found out why. The next step does it.
func (g *Group) fail(err error) {
	if g.failed == nil {
		g.failed, g.found, g.noticeDue = opError("group failed", err), true, true
	}
}

// handleNotice ends the group as another rank says why. It rejects a notice that has not come from
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

// parseNotice returns the rank that sends a notice, and why the group has failed; nil if the notice
// makes no sense.
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

// endFailed ends what waits for a rank that is gone, or all operations if the group has failed.
// It also tells other ranks. If this rank found the failure first, it tells all of them. Otherwise
// it tells those that it has exchanged messages with: they may see this rank close its endpoints
// before the notice of the rank that was first.
func (g *Group) endFailed() {
	g.noticeDue = false
	if g.failed != nil {
		g.tell()
	}
	for r := g.pending.first; r != nil; r = r.next { // abort gives none back: who is told of an end is so by Progress
		r.abortIfDead()
	}
	g.abortSchedules()
}

// tell sends ranks that are there the reason.
func (g *Group) tell() {
	rank := g.rank
	var gone *RankError
	if errors.As(g.failed, &gone) {
		rank = gone.Rank
	}
	binary.LittleEndian.PutUint32(g.notice[:], uint32(g.rank))
	binary.LittleEndian.PutUint32(g.notice[4:], uint32(rank))
	g.notice[8] = byte(statusToTell(g.failed))
	for q := range g.peers {
		p := &g.peers[q]
		if q == g.rank || q == rank || p.gone != nil || p.told || !g.found && !p.used {
			continue
		}
		p.told = true
		if r, err := p.ep.SendActive(NoticeID, nil, g.notice[:], nil); err == nil {
			p.notice = r
		}
	}
}

// hangUp has all end that is under way to a rank, after the group has failed, when it knows.
func (g *Group) hangUp(q int) {
	g.peers[q].hang, g.hangDue = true, true
	if g.hangSince.IsZero() {
		g.hangSince = time.Now()
	}
}

// hangUps closes endpoints that are to be closed, to ranks that know why, or have not said for
// noticeLimit that they do.
func (g *Group) hangUps() {
	g.hangDue = false
	late := time.Since(g.hangSince) >= g.waits
	for q := range g.peers {
		p := &g.peers[q]
		switch {
		case !p.hang:
			continue
		case p.told && p.uninformed() && !late:
			g.hangDue = true
			continue
		}
		p.hang = false
		p.release()
		if p.gone == nil {
			p.gone = g.failed
		}
		if r, err := p.ep.Close(ucp.CloseForce); err == nil && r != nil {
			r.Release()
		}
	}
}

// uninformed reports that the rank may not know of the failure yet, and may still be told.
func (p *peer) uninformed() bool { return p.gone == nil && !p.knows }

// release gives a notice back.
func (p *peer) release() {
	if p.notice != nil {
		p.notice.Release()
		p.notice = nil
	}
}

// tellAll waits until the ranks that are told know.
func (g *Group) tellAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.waits)
	defer cancel()
	_ = g.w.Until(ctx, func() bool { // if ctx ends, they may not
		g.step()
		for q := range g.peers {
			if p := &g.peers[q]; p.told && p.uninformed() {
				return false
			}
		}
		return true
	})
	for q := range g.peers {
		g.peers[q].release()
	}
}
