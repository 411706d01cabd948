package ucp

import (
	"time"

	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// Peers make EPs here by asking for a connection. No user has such an EP. While it has no lane it is
// half open: the peer may have been refused, may have died, or may never have wanted a lane.
//
// An EP that a listener has accepted is half open too, but its peer holds a connection of the listener,
// which bounds their number (ListenConfig.MaxHandshakes). Anyone can ask for the others, so
// their number is limited for each source, and old ones are evicted; see conn.HalfOpen.

// begin makes the link of an EP that a peer has made.
func (e *EP) begin() { e.beginTo(0, e.w.own()) }

// beginTo is begin for a peer that knows the address own. peerEP is the peer's id of the connection; 0 if it
// is not known.
func (e *EP) beginTo(peerEP uint64, own localAddress) {
	e.makeLinkTo(peerEP, own)
	e.link.halfOpen = true
	e.link.within = e.w.ctx.cfg.wireupTimeout() // the peer connects, and says so if it cannot
	if limit := e.w.ctx.cfg.wireupTimeout(); limit > 0 {
		e.link.expires = e.w.engine.Alarm.Now() + limit
		e.w.engine.Alarm.Set(e.link.expires)
	}
}

// expireWithin has the connection go earlier, if it is half open then.
func (l *link) expireWithin(d time.Duration) {
	alarm := &l.e.w.engine.Alarm
	at := alarm.Now() + d
	if l.expires == 0 || at < l.expires {
		l.expires = at
		alarm.Set(at)
	}
}

// whole is called when a lane has come about, and when the EP is a user's or goes.
func (l *link) whole() {
	if l.halfOpen {
		l.halfOpen = false
		if l.e.w.connecting.halfOpen.Remove(l.e) && !l.e.w.connecting.late.Empty() {
			l.e.w.engine.Raise()
		}
	}
}

// dueAlone is when an EP goes that is half open, or asks for its peer, whichever is earlier.
func (e *EP) dueAlone() (at time.Duration, ok bool) {
	l := e.link
	if l.halfOpen && l.expires > 0 {
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

// reject sends the peer the reason that it has made as many EPs as it may, and then closes the EP.
func (e *EP) reject(peerEP uint64) {
	e.w.stats.rejectedEPs.Inc()
	e.beginTo(peerEP, e.w.own())
	e.handle(wireup.Event{Kind: wireup.Closed, Status: ucs.StatusNoResource})
	e.end()
}

// evict forgets the connection to make room for another. The peer gets one notice, if the transport takes
// it at once.
func (e *EP) evict() {
	e.w.stats.evictedEPs.Inc()
	e.handle(wireup.Event{Kind: wireup.Closed, Status: ucs.StatusTimedOut})
	e.abort(ucs.StatusTimedOut)
	e.destroy()
}

// mayConnect reports whether a peer may make a connection by a REQUEST. With a token, it has to be the
// peer of an EP here: Dial and Listen have authenticated its address, or the program gave it to NewEP.
func (w *Worker) mayConnect(p *conn.Peer) bool { return w.ctx.token == "" || p.Held() }
