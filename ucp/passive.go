package ucp

import (
	"fmt"
	"time"

	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// Peers make EPs here that no user holds, by asking for a connection. One of which no lane
// has come about yet is half open: it may come to nothing, as the peer was refused, has
// died, or never meant it.

// begin makes the link of an EP that a peer has made.
func (e *EP) begin() {
	e.makeLink()
	e.link.halfOpen = true
	e.w.halfOpen++
	if limit := e.w.ctx.cfg.wireupTimeout(); limit > 0 {
		e.link.expires = e.w.engine.Alarm.Now() + limit
		e.w.engine.Alarm.Set(e.link.expires)
	}
}

// whole is called when a lane has come about, and when the EP is a user's or goes.
func (l *link) whole() {
	if l.halfOpen {
		l.halfOpen = false
		l.e.w.halfOpen--
		if !l.e.w.late.Empty() {
			l.e.w.engine.Raise()
		}
	}
}

// due is when an EP has to do something about the handshake, or to ask for its peer.
func (l *link) due() (at time.Duration, ok bool) {
	at, ok = l.conn.Deadline()
	if l.halfOpen && l.expires > 0 && (!ok || l.expires < at) {
		at, ok = l.expires, true
	}
	if l.asks > 0 && (!ok || l.asks < at) {
		at, ok = l.asks, true
	}
	return at, ok
}

// expired reports that the connection has stayed half open for Config.WireupTimeout.
func (l *link) expired() bool {
	return l.halfOpen && l.expires > 0 && l.expires <= l.e.w.engine.Alarm.Now()
}

// expire forgets the connection. The peer is not told: it would take a lane to it.
func (e *EP) expire() {
	e.w.stats.expiredEPs.Inc()
	e.abort(ucs.StatusTimedOut)
	e.destroy()
}

// answerDue counts an answer that cannot leave yet. A peer that takes none loses the EP.
func (e *EP) answerDue() {
	if e.link.answers++; e.link.answers == conn.MaxAnswers {
		e.markFailed(ucs.StatusRNR, fmt.Errorf("%w: it takes no answers", ucs.ErrRNR), e.link.lanes.Via[wireup.AM])
	}
}

// answered is called when an answer has left, or will not.
func (r *Request) answered() {
	e := r.ep
	if r.flags&reqAnswerDue == 0 || e.link == nil {
		return
	}
	if e.link.answers--; e.disconnecting {
		e.w.schedule(e)
	}
}
