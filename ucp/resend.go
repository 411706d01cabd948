package ucp

import "github.com/gucx/gucx/ucp/internal/tuple"

// resend is the state of an EP while messages of a closed queue are sent again. They wait before messages that were sent later,
// in EP.ops and in EP.waiting.
type resend struct {
	active   bool
	waits    bool     // messages wait for credit or a lane
	before   *Request // in EP.ops: the next request is inserted before it; nil: at the end
	inserted bool
}

// BeginResend implements tuple.Target.
func (l *tupleLink) BeginResend() tuple.Place {
	l.resend = resend{active: true}
	for r := l.m.e.ops.first; r != nil; r = r.next {
		if r.flags&reqWaiting == 0 || r.stage == &tupleResendStage || r.msg != nil && r.msg.first {
			continue
		}
		if !l.resend.waits {
			l.resend.before, l.resend.waits = r, true
		}
		if r.msg != nil && r.msg.number != 0 {
			return tuple.Place(r.msg.number)
		}
	}
	return tuple.NoPlace
}

// moveTo makes the next request be inserted behind the messages that wait with a place before at.
func (s *resend) moveTo(at tuple.Place) {
	for r := s.before; r != nil; r = r.next {
		if r.flags&reqWaiting == 0 || r.msg == nil || r.msg.number == 0 {
			continue
		}
		if tuple.Place(r.msg.number).After(at) {
			return
		}
		s.before = r.next
	}
}

// startAgain starts a request of a resend: it inserts it among the messages that wait, if there are any.
func (l *tupleLink) startAgain(r *Request) {
	e, s := l.m.e, &l.resend
	if !s.waits {
		e.list(r)
		r.launch()
		return
	}
	s.inserted = true
	e.listBefore(r, s.before)
	r.flags |= reqWaiting
	r.trackUnposted()
	e.waiting.ordered++
	r.stage.class.waits(r)
}

// EndResend implements tuple.Target.
func (l *tupleLink) EndResend() {
	if l.resend.inserted {
		l.m.tag.queue.renumber()
		l.m.e.waiting.unsorted = true
	}
	l.resend = resend{}
	l.m.e.replayQueued()
}
