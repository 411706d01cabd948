package ucpgroup

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// NoticeID is the id of the active messages by which ranks tell each other why the group has
// failed.
const NoticeID = 0xfffe

// failure is why a group takes no more operations.
type failure struct {
	failed    error
	found     bool // this rank has found it, and tells the others
	noticeDue bool // operations are to be ended, and others to be told
	notice    [noticeLen]byte
	telling   []*ucp.Request // notices under way
}

// A notice is the rank that is gone, or has failed, as a little-endian word, and the status.
const noticeLen = 5

// lost is told that an EP has failed. A rank that has left in order takes its messages with it;
// any other end is that of the group. It is called from within package ucp.
func (g *Group) lost(q int, err error) {
	g.peers[q].gone = &RankError{q, err}
	g.noticeDue = true
	if !errors.Is(err, ucs.ErrPeerClosed) {
		g.fail(g.peers[q].gone)
	}
}

// fail ends the group as this rank has found out why. The next step does it.
func (g *Group) fail(err error) {
	if g.failed == nil {
		g.failed, g.found, g.noticeDue = opError("group failed", err), true, true
	}
}

// handleNotice ends the group as another rank has found out why.
func (g *Group) handleNotice(m *ucp.ActiveMessage) {
	if len(m.Data) != noticeLen || g.failed != nil {
		return
	}
	rank, st := binary.LittleEndian.Uint32(m.Data), ucs.Status(m.Data[4])
	if int64(rank) >= int64(len(g.peers)) || st.Err() == nil {
		return
	}
	g.failed, g.noticeDue = opError("group failed", &RankError{int(rank), st.Err()}), true
}

// endFailed ends what waits for a rank that is gone, or all if the group has failed, and tells
// the others.
func (g *Group) endFailed() {
	g.noticeDue = false
	if g.found {
		g.found = false
		g.tell()
	}
	for r := g.pending.first; r != nil; {
		next := r.next
		if err := r.doomed(); err != nil {
			r.cut(err)
		}
		r = next
	}
	g.cutSchedules()
}

// tell sends each rank that is there the reason.
func (g *Group) tell() {
	rank := g.rank
	var gone *RankError
	if errors.As(g.failed, &gone) {
		rank = gone.Rank
	}
	binary.LittleEndian.PutUint32(g.notice[:], uint32(rank))
	g.notice[4] = byte(statusToTell(g.failed))
	for q := range g.peers {
		p := &g.peers[q]
		if q == g.rank || q == rank || p.gone != nil {
			continue
		}
		if r, err := p.ep.SendActive(NoticeID, nil, g.notice[:], nil); err == nil && r != nil {
			g.telling = append(g.telling, r)
		}
	}
}

// tellAll waits until the notices are on their way.
func (g *Group) tellAll(ctx context.Context) {
	g.step()
	for _, r := range g.telling {
		if r.Wait(ctx) != nil {
			r.Release()
		}
	}
	g.telling = nil
}
