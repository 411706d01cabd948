package ucp

import (
	"time"

	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucs"
)

// A REQUEST of a peer makes a passive EP, which no user has. While it has no lane it is half open:
// the peer may have been rejected, may have died, or may never have wanted a lane.
//
// An EP that a listener has accepted is half open too. Its peer has a connection to the listener,
// which limits their number (ListenConfig.MaxHandshakes). Any host can send a REQUEST, so the
// number of the other EPs is limited for each source, and old ones are evicted; see conn.HalfOpen.

// begin makes the link of a passive EP.
func (e *EP) begin() { e.beginTo(0, e.w.own()) }

// beginTo is begin for a peer that has the address own of this side. peerEP is the id of the
// connection at the peer; 0 if it is not known.
func (e *EP) beginTo(peerEP uint64, own localAddress) {
	e.makeLinkTo(peerEP, own)
	e.link.halfOpen = true
	e.link.within = e.w.ctx.cfg.wireupTimeout() // the peer connects, and reports if it cannot
	if limit := e.w.ctx.cfg.wireupTimeout(); limit > 0 {
		e.link.expires = e.w.engine.Alarm.Now() + limit
		e.w.engine.Alarm.Set(e.link.expires)
	}
}

// expireWithin makes the connection expire after d, if it is half open then and does not expire
// earlier.
func (l *link) expireWithin(d time.Duration) {
	alarm := &l.e.w.engine.Alarm
	at := alarm.Now() + d
	if l.expires == 0 || at < l.expires {
		l.expires = at
		alarm.Set(at)
	}
}

// endHalfOpen is called when a lane is active, when the EP becomes a user's, and when it is destroyed:
// the EP is no longer half open.
func (l *link) endHalfOpen() {
	if l.halfOpen {
		l.halfOpen = false
		if l.e.w.connecting.halfOpen.Remove(l.e) && !l.e.w.connecting.late.Empty() {
			l.e.w.engine.Raise()
		}
	}
}

// dueAlone returns the earliest of the times when a half-open EP expires, when the next keepalive
// check is due, and when the EP is checked for operations.
func (e *EP) dueAlone() (at time.Duration, ok bool) {
	l := e.link
	if l.halfOpen && l.expires > 0 {
		at, ok = l.expires, true
	}
	if l.keepaliveAt > 0 && (!ok || l.keepaliveAt < at) {
		at, ok = l.keepaliveAt, true
	}
	if l.idle.at > 0 && (!ok || l.idle.at < at) {
		at, ok = l.idle.at, true
	}
	return at, ok
}

// expired reports whether the connection has reached the time limit while it is half open.
func (l *link) expired() bool {
	return l.halfOpen && l.expires > 0 && l.expires <= l.e.w.engine.Alarm.Now()
}

// expire destroys a half-open EP. It does not notify the peer: that needs a lane.
func (e *EP) expire() {
	e.w.stats.expiredEPs.Inc()
	e.abort(ucs.StatusTimedOut)
	e.destroy()
}

// reject sends the peer the reason that it has too many EPs, and closes the EP.
func (e *EP) reject(peerEP uint64) {
	e.w.stats.rejectedEPs.Inc()
	e.beginTo(peerEP, e.w.own())
	e.handle(handshake.Event{Kind: handshake.Closed, Status: ucs.StatusNoResource})
	e.destroyWhenIdle()
}

// evict destroys a half-open EP to make room for another. The peer gets one notification, if the
// transport sends it at once.
func (e *EP) evict() {
	e.w.stats.evictedEPs.Inc()
	e.handle(handshake.Event{Kind: handshake.Closed, Status: ucs.StatusTimedOut})
	e.abort(ucs.StatusTimedOut)
	e.destroy()
}

// mayConnect reports whether a peer may connect with a REQUEST. If a token is configured, the peer
// must have an EP here already: Dial or Listen has authenticated its address, or the program passed
// it to NewEP.
func (w *Worker) mayConnect(p *conn.Peer) bool { return w.ctx.token == "" || p.Held() }
