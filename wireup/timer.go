package wireup

import (
	"math"
	"time"

	"github.com/gucx/gucx/ucs"
)

// firstPause is how long a message goes unanswered before it is said again: some
// thousand round trips of a slow network, and too long for a peer that is awake to
// see a repetition. Each pause is twice the one before, up to lastPause: seven
// repetitions within about two minutes, after which there is none.
const (
	firstPause = time.Second
	lastPause  = 64 * firstPause
)

// maxPaths is how often repetitions begin anew as another path takes the messages: often enough for
// every path of a host with many devices. After that they become rare and end as over one path, since
// all paths may be silent for ever.
const maxPaths = 16

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// timer is how long a handshake has waited for its peer.
type timer struct {
	running bool
	since   time.Duration // when the wait began, or the peer moved the handshake on
	repeat  time.Duration // when what is not answered is said again
	pause   time.Duration // before that
	paths   int           // over which repetitions began anew
}

// Deadline is when TimePassed is due, in the time of [Event.Now]; ok is false while
// nothing is.
func (c *Conn) Deadline() (at time.Duration, ok bool) {
	if !c.timer.running {
		return 0, false
	}
	at = c.timer.repeat
	if c.givesUp() {
		at = min(at, c.timer.since+c.p.Timeout)
	}
	return at, at != never
}

// restartTimer starts the timer when a handshake begins and when the peer has moved it on,
// and stops it at the end.
func (c *Conn) restartTimer(moved bool) {
	switch {
	case c.over || c.Quiet():
		c.timer = timer{}
	case moved || !c.timer.running:
		c.timer = timer{running: true, since: c.now, repeat: c.now + firstPause, pause: firstPause}
	}
}

// timePassed gives up a peer that was silent for too long, or repeats.
func (c *Conn) timePassed() {
	switch t := &c.timer; {
	case !t.running:
	case c.givesUp() && c.now-t.since >= c.p.Timeout:
		c.fail(ucs.StatusTimedOut, "no answer to the handshake for "+c.p.Timeout.String())
	case c.now >= t.repeat:
		c.repeat()
		if t.pause *= 2; t.pause > lastPause {
			t.repeat = never
			c.forgetBroken()
			c.activateAll()
		} else {
			t.repeat = c.now + t.pause
		}
	}
}

// givesUp reports that the peer's silence ends the connection at some time. A side
// that needs nothing itself loses nothing by waiting for a peer that is slow.
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

// repeat says again what the peer has not answered: proposals, and replies without
// an ACK. An ACK that was lost is sent again when the reply to it is repeated.
func (c *Conn) repeat() {
	c.retransmit(Request, laneProposed)
	c.retransmit(Reply, laneAccepted)
	c.retransmit(Drop, laneBroken)
}

// repeatNow repeats over another path, and again soon.
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
			m.Lanes = append(m.Lanes, l.entry(l.reason))
		}
	}
	for i := range c.excluded { // those without room follow when the peer has answered these
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

// forgetBroken closes lanes that broke though the peer has not said that it knows. If that
// leaves none, nobody would ever learn that the peer is gone.
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
