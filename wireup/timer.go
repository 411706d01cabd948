package wireup

import (
	"math"
	"time"

	"github.com/gucx/gucx/ucs"
)

// firstPause is the time before the first retransmission: some
// thousand round trips of a slow network, and so long that a peer that makes progress
// replies earlier. Each pause is twice the one before, up to lastPause: seven
// retransmissions within about two minutes, and none after that.
const (
	firstPause = time.Second
	lastPause  = 64 * firstPause
)

// maxPaths limits how often retransmissions restart with firstPause because the messages use another
// path: enough for every path of a host with many devices. After that the pauses grow
// and retransmissions end as with one path, since no path may ever deliver.
const maxPaths = 16

// never is a time that is never reached.
const never = time.Duration(math.MaxInt64)

// timer is how long a handshake has waited for its peer.
type timer struct {
	running bool
	since   time.Duration // when the wait began, or the handshake progressed last
	repeat  time.Duration // when the next retransmission is due
	pause   time.Duration // before that
	paths   int           // for which retransmissions restarted
}

// Deadline is when TimePassed is due, in the time of [Event.Now]; ok is false if no timer
// runs.
func (c *Conn) Deadline() (at time.Duration, ok bool) {
	at, ok = c.nextRetry()
	if !ok {
		at = never
	}
	if c.timer.running {
		at = min(at, c.timer.repeat)
	}
	if c.timer.running && c.givesUp() {
		at = min(at, c.timer.since+c.p.Timeout)
	}
	return at, at != never
}

// restartTimer starts the timer when a handshake begins and when it progresses,
// and stops it at the end.
func (c *Conn) restartTimer(moved bool) {
	switch {
	case c.over || c.Quiet():
		c.timer = timer{}
	case moved || !c.timer.running:
		c.timer = timer{running: true, since: c.now, repeat: c.now + firstPause, pause: firstPause}
	}
}

// timePassed does what is due.
func (c *Conn) timePassed() {
	c.repeatDue()
	if !c.over {
		c.startRetries()
	}
}

// repeatDue fails the connection after the timeout, or retransmits.
func (c *Conn) repeatDue() {
	switch t := &c.timer; {
	case !t.running:
	case c.givesUp() && c.now-t.since >= c.p.Timeout:
		c.fail(ucs.StatusTimedOut, "no answer to the handshake for "+c.p.Timeout.String())
	case c.now >= t.repeat:
		c.repeat()
		if t.pause *= 2; t.pause <= lastPause {
			t.repeat = c.now + t.pause
			return
		}
		t.repeat = never
		c.forgetBroken() // first: the lanes of trials that end now stay until their DROP is sent
		if c.endTrials() {
			t.pause, t.repeat = lastPause, c.now+lastPause
		}
		c.activateAll()
	}
}

// givesUp reports whether the timeout applies. A side that needs no lane itself can
// wait for a slow peer without limit.
func (c *Conn) givesUp() bool {
	if c.p.Timeout <= 0 {
		return false
	}
	for role := range Aux {
		if c.wanted.Has(role) && !c.active(role) {
			return true
		}
	}
	return false
}

// repeat retransmits messages without a reply: proposals, drops, and replies without
// an ACK. A lost ACK is sent again when the peer repeats its REPLY.
func (c *Conn) repeat() {
	c.retransmit(Request, laneProposed)
	c.retransmit(Reply, laneAccepted)
	c.retransmit(Drop, laneBroken)
	c.repeatMoves()
}

// repeatNow retransmits at once over another path, and restarts the pauses.
func (c *Conn) repeatNow() {
	c.repeat()
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

// again describes the lane in a message that is sent again.
func (l *lane) again(t MsgType) MsgLane {
	switch t {
	case Request:
		return l.proposal()
	case Drop:
		return l.entry(l.reason)
	}
	return l.entry(ucs.StatusOK)
}

// forgetBroken closes broken lanes although the peer has not confirmed the DROP. If no lane
// is left, the connection fails, because nothing else would detect that the peer is gone.
func (c *Conn) forgetBroken() {
	last := ucs.StatusOK
	for i := range c.excluded {
		if x := &c.excluded[i]; x.peer == peerPending {
			x.peer = peerAware
		}
	}
	for i := range c.lanes {
		if l := &c.lanes[i]; l.state == laneBroken {
			last = l.reason
			c.free(i, last)
		}
	}
	for i := range c.lanes {
		if c.lanes[i].state != laneFree {
			return
		}
	}
	if last != ucs.StatusOK {
		c.fail(last, "no lane left, and the peer does not answer")
	}
}

// states are those of the lanes, for comparison.
func (c *Conn) states() (s [MaxLanes]laneState) {
	for i := range c.lanes {
		s[i] = c.lanes[i].state
	}
	return s
}
