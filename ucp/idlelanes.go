package ucp

import (
	"time"

	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// An EP without operations closes its lanes after Config.EPIdleTimeout, and its next operation connects again:
//
//   - After half of the time without operations and messages the EP quiesces its lanes as in a failback (see
//     failback.go), but for no other lane. So the next operation waits for a lane and thereby ends this state: posts
//     need not be counted.
//   - After the other half handshake.Conn sends IDLE. A peer whose lanes are quiesced too agrees, and both close the lanes.
//   - The state of the EP, such as its link, ids, credit and stream, remains.
//
// An EP without lanes does not detect that its peer has died. So it connects at intervals.

// idleCheck is the interval at which an EP without lanes checks its peer, as a multiple of Config.EPIdleTimeout. The
// lanes are then open for the timeout, so they are open for a sixteenth of the time.
const idleCheck = 16

// maxIdleRefusals limits the pause after refusals of the peer: it is half of the timeout, doubled so many times.
const maxIdleRefusals = 6

// idleTimeout returns EPIdleTimeout; 0 for never. Tuple queues belong to a lane.
func (c *Config) idleTimeout() time.Duration {
	if c.TagProto != "" && c.TagProto != tagProtoAuto || c.EPIdleTimeout == config.Infinite {
		return 0
	}
	return c.EPIdleTimeout
}

// idleLanes is the state of an EP for closing its lanes.
type idleLanes struct {
	at       time.Duration // time of the next check; 0 for none
	traffic  int64         // of messages, at the latest check
	refusals int           // successive refusals of the peer
	check    bool          // CheckIdle must be executed
	closed   bool          // the lanes are closed
}

// lanesInUse is called when a lane was activated.
func (l *link) lanesInUse() {
	w, i := l.e.w, &l.idle
	if i.closed {
		i.closed = false
		w.stats.reopenedEPs.Inc()
	}
	l.checkIdleIn(w.ctx.cfg.idleTimeout() / 2)
	i.traffic, _ = l.e.traffic()
}

// checkIdleIn sets the time of the next check. 0 means that there is none.
func (l *link) checkIdleIn(d time.Duration) {
	l.idle.at = 0
	if d > 0 {
		alarm := &l.e.w.engine.Alarm
		l.idle.at = alarm.Now() + d
		alarm.Set(l.idle.at)
	}
}

// idleTimePassed checks whether the EP has been idle since the last check.
func (l *link) idleTimePassed() {
	e, i := l.e, &l.idle
	if i.at == 0 || i.at > e.w.engine.Alarm.Now() {
		return
	}
	if i.at = 0; i.closed {
		e.requestLane(wireup.AM) // its handshake needs a reply of the peer
		return
	}
	traffic, quiet := e.traffic()
	unused := quiet && traffic == i.traffic
	if !unused {
		i.refusals = 0
	}
	i.traffic = traffic
	l.checkIdleIn(e.w.ctx.cfg.idleTimeout() / 2 << i.refusals)
	if unused && e.isIdle() && e.canReconnect() {
		e.handle(handshake.Event{Kind: handshake.NoOperations})
	}
}

// isIdle reports whether the EP has no operations, and no handshake message or reply to send or to receive.
func (e *EP) isIdle() bool {
	l := e.link
	return e.state == epOpen && !e.closing.later && !e.busy() && e.waiting.Empty() && e.fence.count == 0 &&
		e.roles.needed == 0 && l.answers == 0 && len(l.undecided) == 0 && !l.halfOpen && !e.origin.unproven &&
		l.lanes.Unreported() == ucs.StatusOK
}

// traffic returns a number that changes with each message, and whether the protocols permit that the lanes close.
func (e *EP) traffic() (n int64, quiet bool) {
	for _, p := range e.w.protocols {
		if p.traffic == nil {
			continue
		}
		some, ok := p.traffic(e)
		if n += some; !ok {
			return n, false
		}
	}
	return n, true
}

// canReconnect reports whether this side can connect to its peer. With addresses that are only claims of the peer,
// it must not dial, so some transport must connect without that.
func (e *EP) canReconnect() bool {
	if !e.origin.unverified {
		return true
	}
	for _, p := range e.peer.Aux {
		if !e.w.ifaces[p.Local].dials {
			return true
		}
	}
	return false
}

// carrierParams returns the parameters of an endpoint for the carrier.
func (e *EP) carrierParams(p conn.Path) uct.EPParams {
	remote := &e.peer.Addr.Resources[p.Remote]
	params := uct.EPParams{DeviceAddr: remote.DeviceAddr, IfaceAddr: remote.IfaceAddr, Peer: e.peerIdentity(), Dial: uct.DialNow, Within: e.link.within}
	if e.origin.unverified {
		params.Dial = uct.DialedByPeer // the REQUEST has arrived over one of the paths
	}
	return params
}

// reserveCarrier makes an endpoint that sends nothing, if only the peer can dial for the carrier and no lane uses such a
// transport. Otherwise both sides would close the connection as unused. Then this side could neither replace a broken lane
// nor notify the peer that the EP is closed.
func (l *link) reserveCarrier() {
	e := l.e
	switch {
	case e.canReconnect() || l.hasDialedLane():
		l.releaseCarrier()
		return
	case l.reserved != nil:
		return
	}
	for _, p := range e.peer.Aux {
		if ep, err := e.w.ifaces[p.Local].NewEP(e.carrierParams(p)); err == nil {
			l.reserved = ep
			e.w.lanes.byEP[ep] = laneOwner{e: e}
			return
		}
	}
}

// hasDialedLane reports whether a lane uses a transport with connections that one side dials.
func (l *link) hasDialedLane() bool {
	for i := range l.lanes.All {
		if x := &l.lanes.All[i]; x.EP != nil && x.Iface.dials {
			return true
		}
	}
	return false
}

// releaseCarrier closes the endpoint of reserveCarrier.
func (l *link) releaseCarrier() {
	if ep := l.reserved; ep != nil {
		l.reserved = nil
		delete(l.e.w.lanes.byEP, ep)
		l.e.w.addCloseError(ep.Close())
	}
}

// checkIdle executes CheckIdle.
func (l *link) checkIdle() {
	if !l.idle.check {
		return
	}
	l.idle.check = false
	e := l.e
	for n := 0; n < len(l.lanes.All) && e.link == l; n++ {
		if x := &l.lanes.All[n]; x.EP != nil {
			x.Iface.receiveRest()
		}
	}
	if e.link != l || e.state >= epFailed { // a handler has closed the EP
		return
	}
	traffic, quiet := e.traffic()
	unused := quiet && traffic == l.idle.traffic
	l.idle.traffic = traffic
	st := ucs.StatusInProgress
	if unused && e.isIdle() && e.canReconnect() {
		st = ucs.StatusOK
	}
	e.handle(handshake.Event{Kind: handshake.IdleChecked, Status: st})
}

// wentIdle records that the lanes close.
func (l *link) wentIdle() {
	w, i := l.e.w, &l.idle
	for n := range l.lanes.All {
		if l.lanes.All[n].EP != nil {
			w.stats.idleClosedLanes.Inc()
		}
	}
	i.closed, i.refusals, l.railsRequested, l.keepaliveAt = true, 0, false, 0
	if l.moves != nil {
		l.moves.oldAM = nil // all messages have arrived
	}
	if l.checkIdleIn(0); w.ctx.cfg.keepalive() > 0 && l.e.peer.Best[wireup.AM].OK {
		l.checkIdleIn(idleCheck * w.ctx.cfg.idleTimeout())
	}
}

// keepLanes records that the peer has refused to close the lanes or, if st is not StatusOK, that IDLE could not be sent or
// the peer has not replied.
func (l *link) keepLanes(st ucs.Status) {
	if l.idle.refusals = min(l.idle.refusals+1, maxIdleRefusals); st == ucs.StatusTimedOut { // a release without this feature
		l.checkIdleIn(0)
	}
}
