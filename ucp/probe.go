package ucp

import (
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucs"
)

// TagProbe looks for the message that a receive of that tag and mask would get, and makes
// no progress. ok is false if there is none yet. With remove it takes the message out, so
// that no other receive gets it: m must then be received, with [TagMessage.Recv], or
// released. Otherwise m is nil. A message that its sender has not sent for want of credit is found by
// one of the next calls with the same arguments.
func (w *Worker) TagProbe(tag, mask uint64, remove bool) (m *TagMessage, info TagInfo, ok bool) {
	var found *match.Msg[*TagMessage]
	if x := w.tag.matcher; x != nil {
		found = x.probe(tag, mask)
	} else {
		found = w.tag.table.Peek(tag, mask)
	}
	if found == nil {
		return w.probeBlocked(tag, mask, remove)
	}
	m = found.Owner
	if info = m.info(); !remove {
		return nil, info, true
	}
	w.tag.table.Remove(found)
	return m.taken(), info, true
}

// Info tells of the message.
func (u *TagMessage) Info() TagInfo { return u.info() }

// Recv receives the message; as [Worker.TagRecv]. It must not be touched after that. If the
// rest of it does not come, since its EP has failed or was closed, the error says so.
func (u *TagMessage) Recv(buf []byte, info *TagInfo, p *OpParams) (*Request, error) {
	if p != nil && p.Mem != nil && !p.Mem.Covers(buf) {
		return nil, recvError(len(buf), errNotCovered)
	}
	if st := u.lost; st != ucs.StatusOK {
		err := u.from.failure(action{stage: &tagRecvStage, n: len(buf)}, st)
		u.done(st)
		return nil, err
	}
	return u.recv(buf, info, p)
}

// Release drops the message. It must not be touched after that. A sender that waits for it
// is told that it was canceled.
func (u *TagMessage) Release() {
	if u.in != nil {
		u.released = true
		return
	}
	u.done(ucs.StatusCanceled)
}
