package ucp

import (
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucs"
)

// TagProbe returns the message that a receive with this tag and mask would match. It makes
// no progress. ok is false if there is no such message yet. With remove, TagProbe removes the message, so
// that no other receive matches it: the caller must then receive m, with [TagMessage.Recv], or
// release it. Otherwise m is nil. If the sender has queued the message because it lacks credit,
// one of the next calls with the same arguments returns the message.
func (w *Worker) TagProbe(tag, mask uint64, remove bool) (m *TagMessage, info TagInfo, ok bool) {
	var found *match.Msg[*TagMessage]
	if x := w.tag.matcher; x != nil {
		if found = x.probe(tag, mask); found == nil && x.paused() {
			return nil, TagInfo{}, false
		}
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
	return m.unlink(), info, true
}

// Info describes the message.
func (u *TagMessage) Info() TagInfo { return u.info() }

// Recv receives the message; as [Worker.TagRecv], but CompleteNow does nothing. The caller must not use m after that. If the
// rest of the message cannot arrive, because its EP has failed or is closed, the error contains the reason.
func (u *TagMessage) Recv(buf []byte, info *TagInfo, p *OpParams) (*Request, error) {
	if p != nil && p.Mem != nil && !p.Mem.Covers(buf) {
		return nil, recvError(len(buf), errNotCovered)
	}
	if err := p.flags().check(); err != nil {
		return nil, recvError(len(buf), err)
	}
	if st := u.lost; st != ucs.StatusOK {
		err := u.from.failure(action{stage: &tagRecvStage, n: len(buf)}, st)
		u.done(st)
		return nil, err
	}
	w := u.w
	r, err := u.recv(buf, info, p)
	return w.completeLater(p, r, err)
}

// Release drops the message. The caller must not use m after that. If the sender waits for a receive, its request
// completes with ErrCanceled.
func (u *TagMessage) Release() {
	if u.in != nil {
		u.released = true
		return
	}
	u.done(ucs.StatusCanceled)
}
