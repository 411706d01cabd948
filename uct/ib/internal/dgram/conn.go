package dgram

import (
	"time"

	"github.com/gucx/gucx/internal/seq"
	"github.com/gucx/gucx/internal/timelimit"
)

// MaxWindow is the maximum of Params.Window. It is far below half of the PSN space.
const MaxWindow = 1 << 12

// Params are the window and timeouts of connections.
type Params struct {
	// Window is the maximum number of unacknowledged packets, 1..MaxWindow.
	Window int
	// Timeout is the retransmission timeout of the first attempt. It doubles with each further one,
	// up to MaxTimeout.
	Timeout, MaxTimeout time.Duration
	// PeerTimeout is the time without an acknowledgement after which the peer counts as dead. Of
	// the time between two Ticks, at most the timeout of the current attempt counts: a sender that
	// was not scheduled has neither handled what arrived nor retransmitted.
	PeerTimeout time.Duration
}

// firstWindow is the maximum number of packets in flight before the first acknowledgement.
const firstWindow = 16

// State is the state of a connection.
type State uint8

// States.
const (
	Idle State = iota
	Connecting
	Connected
)

// Conn is the state machine of one connection. The caller must call Init first. It is not safe for
// concurrent use.
type Conn struct {
	state  State
	remote uint32 // the peer's connection id

	una, snd, next seq.U16 // see the package comment
	ackRequested   seq.U16 // value of next at the last request for an acknowledgement
	high           seq.U16 // highest value of snd: packets from it on are sent for the first time
	window         int     // maximum number of packets in flight, 1..p.Window

	expect  seq.U16 // the next PSN to accept
	due     int     // number of data packets accepted since the last acknowledgement
	urgent  bool    // send an acknowledgement at the end of this Progress
	gap     bool    // a NAK for expect was sent
	nakDue  bool
	p       *Params
	timing  bool            // stamp and silence are set
	stamp   time.Duration   // time of the last attempt
	silence timelimit.Limit // limit of the time without an acknowledgement
	retries uint8
}

// Init initializes a connection with window and timeouts of p, which is not copied.
func (c *Conn) Init(p *Params) {
	*c = Conn{p: p, window: min(firstWindow, p.Window)}
}

// State returns the state.
func (c *Conn) State() State { return c.state }

// Remote returns the peer's connection id. It is valid in state Connected.
func (c *Conn) Remote() uint32 { return c.remote }

// Start starts to connect. If it returns true, the caller must send a CREQ.
func (c *Conn) Start() bool {
	if c.state != Idle {
		return false
	}
	c.state = Connecting
	return true
}

// Accept handles the peer's id from a CREQ or CREP. It returns false if the connection has another
// id, which means that the peer has lost this connection.
func (c *Conn) Accept(remote uint32) bool {
	if c.state == Connected {
		return c.remote == remote
	}
	c.state, c.remote = Connected, remote
	c.advanced()
	return true
}

// Full reports whether the window is full.
func (c *Conn) Full() bool { return c.next.Diff(c.una) >= c.p.Window }

// Push queues a data packet and returns its PSN. Full must be false.
func (c *Conn) Push() seq.U16 {
	psn := c.next
	c.next = c.next.Next()
	return psn
}

// Unacked returns the number of packets that are queued or not acknowledged.
func (c *Conn) Unacked() int { return c.next.Diff(c.una) }

// Sendable reports whether the next packet may be sent.
func (c *Conn) Sendable() bool {
	return c.snd != c.next && c.state == Connected && c.snd.Diff(c.una) < c.window
}

// Header returns the header of the next packet, which is an AM with this id or a probe, and counts
// the packet as sent. A probe requests an acknowledgement. Sendable must be true.
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
		h.AckReq, c.ackRequested = true, c.snd
	}
	h.Ack = c.takeAck()
	return h
}

// Control returns the header of a control packet. Like every packet it contains an acknowledgement.
func (c *Conn) Control(kind Control, ackReq bool) Header {
	return Header{Dest: c.remote, ID: kind, AckReq: ackReq, PSN: c.next, Ack: c.takeAck()}
}

func (c *Conn) takeAck() seq.U16 {
	c.due, c.urgent, c.nakDue = 0, false, false
	return c.expect.Add(-1)
}

// Acked handles the acknowledgement in a packet. It returns the number of packets, oldest first,
// that it acknowledges; 0 also if ack was not sent.
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

// Nak handles a NAK, after Acked: the packets in flight are sent again.
func (c *Conn) Nak() { c.snd = c.una }

// advanced restarts the timer.
func (c *Conn) advanced() { c.timing, c.retries = false, 0 }

// Arrived handles a data packet. If it returns true, the caller must deliver the packet now.
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

// AckRequested handles a control packet that requests an acknowledgement. next is its PSN, the next
// one of the peer.
func (c *Conn) AckRequested(next seq.U16) {
	c.urgent = true
	if c.expect.Less(next) {
		c.gap = false // the peer waits, so a NAK for this gap may have been lost
		c.missing()
	}
}

// missing requests a NAK for packets from expect on, once for each gap.
func (c *Conn) missing() {
	if !c.gap {
		c.gap, c.nakDue, c.urgent = true, true, true
	}
}

// AckKind returns the control packet that is due to the peer: CtlAck, CtlNak or 0. If urgent is
// set, it should not wait for data to the peer.
func (c *Conn) AckKind() (kind Control, urgent bool) {
	switch {
	case c.state != Connected || c.due == 0 && !c.urgent:
		return 0, false
	case c.nakDue:
		return CtlNak, true
	}
	return CtlAck, c.urgent
}

// Action is the result of a tick.
type Action uint8

// Actions.
const (
	ActNone    Action = iota
	ActConnect        // send the CREQ again
	ActResend         // send while Sendable
	ActFail           // the peer is dead
)

// Waiting reports whether the connection waits for the peer and needs Ticks.
func (c *Conn) Waiting() bool { return c.state == Connecting || c.next != c.una }

// Tick handles timeouts. now may be of any clock that does not go back. The caller must call it
// regularly while Waiting.
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

// timeout returns the timeout of the current attempt.
func (c *Conn) timeout() time.Duration {
	return min(c.p.Timeout<<min(c.retries, 16), c.p.MaxTimeout)
}

// Patience returns the maximum time until the next Tick.
func (c *Conn) Patience() time.Duration { return c.timeout() }

// Last returns the PSN of the last data packet. There must have been one.
func (c *Conn) Last() seq.U16 { return c.next.Add(-1) }

// RequestAck reports whether a control packet should request an acknowledgement of all packets, and
// records it: once for each last packet. While packets wait to be sent, it returns false.
func (c *Conn) RequestAck() bool {
	if c.state != Connected || c.snd != c.next || c.ackRequested == c.next {
		return false
	}
	c.ackRequested = c.next
	return true
}
