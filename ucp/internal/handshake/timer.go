package handshake

import (
	"math"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// firstPause is the time before the first retransmission: about a
// thousand round trips of a slow network, so that a peer that makes progress
// replies earlier. Each pause is twice the previous one, up to lastPause: seven
// retransmissions within about two minutes, and none after that.
const (
	firstPause = time.Second
	lastPause  = 64 * firstPause
)

// maxPaths limits how often retransmissions restart with firstPause because the messages use another
// path: enough for every path of a host with many devices. After that the pauses grow
// and retransmissions end as with one path, because possibly no path works.
const maxPaths = 16

// never is a time that is never reached.
const never = time.Duration(math.MaxInt64)

// timer measures how long a handshake has waited for its peer.
type timer struct {
	running bool
	since   time.Duration // time at which the handshake or the wait of this side began, or at which it last progressed
	repeat  time.Duration // time of the next retransmission
	pause   time.Duration // length of the pause before repeat
	paths   int           // number of restarts, one for each further path
}

// Deadline returns the time at which TimePassed is due, in the time of [Event.Now]; ok is false if no timer
// runs.
func (c *Conn) Deadline() (at time.Duration, ok bool) {
	at, ok = c.nextRetry()
	if !ok {
		at = never
	}
	if c.timer.running {
		at = min(at, c.timer.repeat)
	}
	if c.timer.running && c.timeoutApplies() {
		at = min(at, c.timer.since+c.p.Timeout)
	}
	return at, at != never
}

// restartTimer starts the timer when a handshake begins, when it progresses, and when this side begins to wait for
// a lane. It stops the timer at the end.
func (c *Conn) restartTimer(progressed bool) {
	switch {
	case c.over || c.Quiet():
		c.timer = timer{}
	case progressed || !c.timer.running:
		c.timer = timer{running: true, since: c.now, repeat: c.now + firstPause, pause: firstPause}
	}
}

// timePassed retransmits messages and starts retries that are due.
func (c *Conn) timePassed() {
	c.retransmitDue()
	if !c.over {
		c.startRetries()
	}
}

// retransmitDue fails the connection after the timeout, or retransmits.
func (c *Conn) retransmitDue() {
	switch t := &c.timer; {
	case !t.running:
	case c.timeoutApplies() && c.now-t.since >= c.p.Timeout:
		c.fail(ucs.StatusTimedOut, "no reply to the handshake for "+c.p.Timeout.String())
	case c.now >= t.repeat:
		c.retransmitAll()
		if t.pause *= 2; t.pause <= lastPause {
			t.repeat = c.now + t.pause
			return
		}
		t.repeat = never
		closing := c.closeBroken() // before endTrials, whose broken lanes must remain until their DROP is sent
		moving := c.endTrials()
		if c.endIdleHandshake(ucs.StatusTimedOut) || moving || closing {
			t.pause, t.repeat = lastPause, c.now+lastPause
		}
		c.activateAll()
	}
}

// timeoutApplies reports whether this side waits for a lane that it needs. A side that needs no lane
// waits for a slow peer without limit.
func (c *Conn) timeoutApplies() bool {
	return c.p.Timeout > 0 && c.waitsForLane()
}

// waitsForLane reports whether a role that this side needs has no active lane.
func (c *Conn) waitsForLane() bool {
	for role := range wireup.Aux {
		if c.wanted.Has(role) && !c.active(role) {
			return true
		}
	}
	return false
}

// retransmitAll retransmits messages without a reply: proposals, drops, and replies without
// an ACK. A lost ACK is sent again when the peer retransmits its REPLY.
func (c *Conn) retransmitAll() {
	c.retransmit(Request, laneProposed)
	c.retransmit(Reply, laneAccepted)
	c.retransmit(Drop, laneBroken)
	c.retransmitMoves()
	c.retransmitIdle()
}

// retransmitNow retransmits at once over another path, and restarts the pauses.
func (c *Conn) retransmitNow() {
	c.retransmitAll()
	if t := &c.timer; t.running && t.paths < maxPaths {
		t.paths++
		t.repeat, t.pause = c.now+firstPause, firstPause
	}
}

func (c *Conn) retransmit(t MsgType, in laneState) {
	m := c.newMsg(t)
	for i := range c.lanes {
		if l := &c.lanes[i]; l.state == in {
			m.Lanes = append(m.Lanes, l.again(t))
		}
	}
	for i := range c.excluded { // pairs without room in m follow after the peer's reply
		if x := &c.excluded[i]; t == Drop && x.peer == peerPending && len(m.Lanes) < MaxLanes {
			m.Lanes = append(m.Lanes, x.entry())
		}
	}
	if len(m.Lanes) == 0 {
		return
	}
	if t == Request && m.DstEP == 0 {
		m.Addr = c.p.PackedLocal
	}
	c.do(Action{Kind: SendMsg, Msg: m, Again: true})
}

// again returns the entry of the lane in a retransmission of a message of type t.
func (l *lane) again(t MsgType) MsgLane {
	switch t {
	case Request:
		return l.proposal()
	case Drop:
		return l.entry(l.reason)
	}
	return l.entry(ucs.StatusOK)
}

// closeBroken closes broken lanes although the peer has not confirmed the DROP. If no lane
// is left, the connection fails, because nothing else would detect that the peer is gone.
// The lanes of an idle connection remain, because the peer may still have them and would take their end for the end of
// the connection: waits reports whether there are any, so that retransmissions continue.
func (c *Conn) closeBroken() (waits bool) {
	last := ucs.StatusOK
	for i := range c.excluded {
		if x := &c.excluded[i]; x.peer == peerPending {
			x.peer = peerAware
		}
	}
	for i := range c.lanes {
		switch l := &c.lanes[i]; {
		case l.closesIdle():
			waits = true
		case l.state == laneBroken:
			last = l.reason
			c.free(i, last)
		}
	}
	if last == ucs.StatusOK { // roles may have waited until the lanes were closed
		c.replaceLanes()
	}
	for i := range c.lanes {
		if c.lanes[i].state != laneFree {
			return waits
		}
	}
	if last != ucs.StatusOK {
		c.fail(last, "no lane left, and the peer does not reply")
	}
	return waits
}

// states is the progress of all handshakes of a connection.
type states struct {
	lanes [MaxLanes]laneState
	idle  idleState
}

// states returns the progress of the handshakes, for a comparison.
func (c *Conn) states() (s states) {
	for i := range c.lanes {
		s.lanes[i] = c.lanes[i].state
	}
	s.idle = c.idle.state
	return s
}
