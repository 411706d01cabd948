package dgram

import (
	"time"

	"github.com/gucx/gucx/internal/seq"
	"github.com/gucx/gucx/internal/timelimit"
)

// MaxWindow bounds Params.Window: far below half of the PSN space.
const MaxWindow = 1 << 12

// Params are the timing and the window of connections.
type Params struct {
	// Window is how many packets the sender keeps, 1..MaxWindow; as many are in
	// flight at most.
	Window int
	// Timeout is how long the first attempt waits for an acknowledgement; each
	// further one waits twice as long, up to MaxTimeout.
	Timeout, MaxTimeout time.Duration
	// PeerTimeout is how long nothing may be acknowledged until the peer counts
	// as dead. Of the time between two Ticks no more counts than the attempt under
	// way waits: a sender that was held up has not been told what came meanwhile, and
	// has not asked again.
	PeerTimeout time.Duration
}

// firstWindow is how many packets are in flight before the first acknowledgement.
const firstWindow = 16

// State of a connection.
type State uint8

// States.
const (
	Idle State = iota
	Connecting
	Connected
)

// Conn is the state machine of one connection. Init it before use. It is not safe
// for concurrent use.
type Conn struct {
	state  State
	remote uint32 // the peer's connection id

	una, snd, next seq.U16 // see the package comment
	asked          seq.U16 // next when an acknowledgement was last asked for
	high           seq.U16 // snd has been here: after it, packets go out the first time
	window         int     // packets that may be in flight, 1..p.Window

	expect  seq.U16 // the next PSN to take in
	due     int     // data packets taken in since an acknowledgement went out
	urgent  bool    // acknowledge at the end of this round
	gap     bool    // a NAK for expect has gone out
	nakDue  bool
	p       *Params
	timing  bool            // the next two are set
	stamp   time.Duration   // of the last attempt
	silence timelimit.Limit // of the peer
	retries uint8
}

// Init makes a connection with a window and timers of p, which is not copied.
func (c *Conn) Init(p *Params) {
	*c = Conn{p: p, window: min(firstWindow, p.Window)}
}

// State returns the state.
func (c *Conn) State() State { return c.state }

// Remote is the peer's connection id, valid when Connected.
func (c *Conn) Remote() uint32 { return c.remote }

// Start asks for the connection; true if a CREQ is to be sent.
func (c *Conn) Start() bool {
	if c.state != Idle {
		return false
	}
	c.state = Connecting
	return true
}

// Accept takes the peer's id from its CREQ or CREP; false if another one is
// connected already, which means that the peer has forgotten this connection.
func (c *Conn) Accept(remote uint32) bool {
	if c.state == Connected {
		return c.remote == remote
	}
	c.state, c.remote = Connected, remote
	c.advanced()
	return true
}

// Full reports whether no further packet can be kept.
func (c *Conn) Full() bool { return c.next.Diff(c.una) >= c.p.Window }

// Push adds a data packet behind the others and returns its PSN. Not when Full.
func (c *Conn) Push() seq.U16 {
	psn := c.next
	c.next = c.next.Next()
	return psn
}

// Unacked is the number of packets that are kept.
func (c *Conn) Unacked() int { return c.next.Diff(c.una) }

// Sendable reports whether the next packet may go out.
func (c *Conn) Sendable() bool {
	return c.snd != c.next && c.state == Connected && c.snd.Diff(c.una) < c.window
}

// Header is the header of the next packet, the AM with the given id or a probe, which then
// counts as sent. A probe asks for its acknowledgement. Only if Sendable.
func (c *Conn) Header(amID uint8) Header {
	h := Header{Dest: c.remote, AM: true, ID: amID, PSN: c.snd}
	again := c.snd.Less(c.high)
	c.snd = c.snd.Next()
	if c.high.Less(c.snd) {
		c.high = c.snd
	}
	flight := c.snd.Diff(c.una)
	h.AckReq = flight == c.window || flight == (3*c.window+3)/4 || again && c.snd == c.next
	if amID == ProbeID {
		h.AckReq, c.asked = true, c.snd
	}
	h.Ack = c.takeAck()
	return h
}

// Control is the header of a control packet, which carries an acknowledgement
// like every other.
func (c *Conn) Control(kind Control, ackReq bool) Header {
	return Header{Dest: c.remote, ID: kind, AckReq: ackReq, PSN: c.next, Ack: c.takeAck()}
}

func (c *Conn) takeAck() seq.U16 {
	c.due, c.urgent, c.nakDue = 0, false, false
	return c.expect.Add(-1)
}

// Acked takes in the acknowledgement of a packet that has arrived and returns how
// many of the packets kept are acknowledged by it, oldest first; 0 also if it
// names a packet that has not been sent.
func (c *Conn) Acked(ack seq.U16) int {
	n := ack.Next().Diff(c.una)
	if n <= 0 || n > c.high.Diff(c.una) {
		return 0
	}
	c.una = c.una.Add(n)
	if c.snd.Less(c.una) {
		c.snd = c.una
	}
	c.window = min(c.window+1, c.p.Window)
	c.advanced()
	return n
}

// Nak takes in a NAK, after its acknowledgement: what is in flight is sent
// again.
func (c *Conn) Nak() { c.snd = c.una }

// advanced restarts the timer.
func (c *Conn) advanced() { c.timing, c.retries = false, 0 }

// Arrived decides about a data packet; true: deliver it now.
func (c *Conn) Arrived(psn seq.U16, ackReq bool) bool {
	switch d := psn.Diff(c.expect); {
	case d == 0:
		c.expect = c.expect.Next()
		c.due++
		c.gap = false
		c.urgent = c.urgent || ackReq || c.due >= max(c.p.Window/4, 1)
		return true
	case d < 0:
		c.urgent = true // our acknowledgement was lost
	default:
		c.missing()
	}
	return false
}

// Asked takes in a control packet that asks for an acknowledgement; next is its
// PSN, the next of the peer.
func (c *Conn) Asked(next seq.U16) {
	c.urgent = true
	if c.expect.Less(next) {
		c.gap = false // the peer waits: a NAK for this gap may have been lost
		c.missing()
	}
}

// missing asks for packets from expect on, once for each gap.
func (c *Conn) missing() {
	if !c.gap {
		c.gap, c.nakDue, c.urgent = true, true, true
	}
}

// AckKind says which control packet is due to the peer: CtlAck, CtlNak or 0.
// urgent: it should not wait for data to travel with.
func (c *Conn) AckKind() (kind Control, urgent bool) {
	switch {
	case c.state != Connected || c.due == 0 && !c.urgent:
		return 0, false
	case c.nakDue:
		return CtlNak, true
	}
	return CtlAck, c.urgent
}

// Action is what a tick of the clock asks for.
type Action uint8

// Actions.
const (
	ActNone    Action = iota
	ActConnect        // send the CREQ again
	ActResend         // send what is Sendable
	ActFail           // the peer is dead
)

// Waiting reports whether the connection waits for the peer, so that the clock
// matters.
func (c *Conn) Waiting() bool { return c.state == Connecting || c.next != c.una }

// Tick tells the time, on any clock that does not go back. Call it now and then
// while Waiting.
func (c *Conn) Tick(now time.Duration) Action {
	if !c.Waiting() {
		c.advanced()
		return ActNone
	}
	if !c.timing {
		c.timing, c.stamp, c.silence = true, now, timelimit.At(now, c.p.PeerTimeout, c.timeout())
		return ActNone
	}
	switch {
	case c.silence.Count(now, c.timeout()):
		return ActFail
	case now-c.stamp < c.timeout():
		return ActNone
	}
	c.stamp = now
	c.retries = min(c.retries, 254) + 1
	if c.state == Connecting {
		return ActConnect
	}
	c.window = max(c.window/2, 1)
	c.snd = c.una
	return ActResend
}

// timeout is the patience of this attempt.
func (c *Conn) timeout() time.Duration {
	return min(c.p.Timeout<<min(c.retries, 16), c.p.MaxTimeout)
}

// Patience is how long the connection can be left without a Tick.
func (c *Conn) Patience() time.Duration { return c.timeout() }

// Last is the PSN of the last data packet. Only if there has been one.
func (c *Conn) Last() seq.U16 { return c.next.Add(-1) }

// RequestAck reports whether a control packet should ask the peer for an acknowledgement
// of everything sent, and remembers that it did: once for each last packet. While
// packets wait to be sent there is nothing to ask.
func (c *Conn) RequestAck() bool {
	if c.state != Connected || c.snd != c.next || c.asked == c.next {
		return false
	}
	c.asked = c.next
	return true
}
