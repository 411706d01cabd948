package dgram

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/seq"
)

func params(window int) *Params {
	return &Params{
		Window: window, Timeout: 10 * time.Millisecond,
		MaxTimeout: 80 * time.Millisecond, PeerTimeout: time.Second,
	}
}

// connected returns a connection to id 9 whose sequence numbers have reached psn.
func connected(window int, psn seq.U16) *Conn {
	c := new(Conn)
	c.Init(params(window))
	c.Accept(9)
	c.una, c.snd, c.next, c.high, c.expect, c.ackRequested = psn, psn, psn, psn, psn, psn
	return c
}

// sendAll returns the headers of all packets that may be sent.
func sendAll(c *Conn) (psns []seq.U16, ackReqs []bool) {
	for c.Sendable() {
		h := c.Header(1)
		psns, ackReqs = append(psns, h.PSN), append(ackReqs, h.AckReq)
	}
	return psns, ackReqs
}

func push(c *Conn, n int) {
	for range n {
		c.Push()
	}
}

func TestConn_ConnectsOnce(t *testing.T) {
	var c Conn
	c.Init(params(4))
	assert.Equal(t, Idle, c.State())
	assert.False(t, c.Waiting())
	assert.True(t, c.Start(), "the first send requests the connection")
	assert.False(t, c.Start(), "only the first")
	c.Push()
	assert.False(t, c.Sendable(), "not before the reply of the peer")
	assert.Equal(t, Connecting, c.State())
	assert.True(t, c.Accept(7))
	assert.True(t, c.Accept(7), "a duplicate CREP, or the CREQ that crossed ours")
	assert.False(t, c.Accept(8), "the peer has lost the connection")
	assert.EqualValues(t, 7, c.Remote())
	psns, _ := sendAll(&c)
	assert.Equal(t, []seq.U16{0}, psns)
}

func TestConn_CreqIsRetransmittedUntilReply(t *testing.T) {
	var c Conn
	c.Init(params(4))
	c.Start()
	assert.Equal(t, ActNone, c.Tick(0), "the clock starts")
	assert.Equal(t, ActNone, c.Tick(9*time.Millisecond))
	assert.Equal(t, ActConnect, c.Tick(10*time.Millisecond))
	assert.Equal(t, ActNone, c.Tick(29*time.Millisecond), "twice the timeout")
	assert.Equal(t, ActConnect, c.Tick(30*time.Millisecond))
	c.Accept(3)
	assert.Equal(t, ActNone, c.Tick(999*time.Millisecond), "nothing to wait for")
}

func TestConn_PeerTimeout(t *testing.T) {
	c := connected(4, 0)
	push(c, 1)
	sendAll(c)
	require.Equal(t, ActNone, c.Tick(0))
	resent := 0
	for now := time.Millisecond; ; now += time.Millisecond {
		act := c.Tick(now)
		if act == ActFail {
			assert.Equal(t, time.Second, now)
			break
		}
		if act == ActResend {
			resent++
			psns, req := sendAll(c)
			assert.Equal(t, []seq.U16{0}, psns)
			assert.Equal(t, []bool{true}, req, "the last retransmission requests an acknowledgement")
		}
		require.Less(t, now, 2*time.Second)
	}
	// 10+20+40+80 ms, then every 80 ms until 1 s.
	assert.Equal(t, 3+(1000-70)/80, resent)
}

// TestConn_StalledSenderRetransmitsFirst: a sender that was not scheduled retransmits before the
// peer counts as dead.
func TestConn_StalledSenderRetransmitsFirst(t *testing.T) {
	c := connected(4, 0)
	push(c, 1)
	sendAll(c)
	require.Equal(t, ActNone, c.Tick(0))
	waited, now := time.Duration(0), time.Duration(0)
	for {
		waited += c.Patience()
		now += time.Minute
		act := c.Tick(now)
		if waited >= time.Second {
			require.Equal(t, ActFail, act, "after as many attempts as without")
			return
		}
		require.Equal(t, ActResend, act)
		sendAll(c)
	}
}

func TestConn_WindowOfOne(t *testing.T) {
	c := connected(1, 65535)
	push(c, 1)
	assert.True(t, c.Full())
	psns, req := sendAll(c)
	assert.Equal(t, []seq.U16{65535}, psns)
	assert.Equal(t, []bool{true}, req, "the last packet in the window requests an acknowledgement")
	assert.Equal(t, 1, c.Acked(65535))
	assert.False(t, c.Full())
	push(c, 1)
	psns, _ = sendAll(c)
	assert.Equal(t, []seq.U16{0}, psns, "the PSN wraps")
	assert.Equal(t, 1, c.Acked(0))
	assert.Zero(t, c.Unacked())
}

func TestConn_WindowOfTwo(t *testing.T) {
	c := connected(2, 65535)
	push(c, 2)
	assert.True(t, c.Full())
	psns, _ := sendAll(c)
	assert.Equal(t, []seq.U16{65535, 0}, psns)
	assert.Equal(t, 1, c.Acked(65535))
	assert.Equal(t, 1, c.Acked(0))
	assert.Zero(t, c.Acked(0), "a duplicate acknowledgement")
}

func TestConn_IgnoresAckOfUnsentPacket(t *testing.T) {
	c := connected(8, 100)
	push(c, 4)
	require.True(t, c.Sendable())
	c.Header(0) // 100 is sent, 101..103 are not
	for _, ack := range []seq.U16{101, 103, 104, 500, 99, 98, 32868} {
		assert.Zero(t, c.Acked(ack), "%d", ack)
	}
	assert.Equal(t, 4, c.Unacked())
	assert.Equal(t, 1, c.Acked(100))
}

func TestConn_NakRetransmits(t *testing.T) {
	c := connected(8, 65534)
	push(c, 4)
	sendAll(c)
	assert.Equal(t, 1, c.Acked(65534))
	c.Nak()
	psns, req := sendAll(c)
	assert.Equal(t, []seq.U16{65535, 0, 1}, psns)
	assert.True(t, req[2])
	// A late acknowledgement of the first transmission covers the packets that are being
	// retransmitted.
	c.Nak()
	assert.Equal(t, 2, c.Acked(0))
	psns, _ = sendAll(c)
	assert.Equal(t, []seq.U16{1}, psns)
}

func TestConn_TimeoutHalvesTheWindow(t *testing.T) {
	c := connected(8, 0)
	require.Equal(t, 8, c.window)
	push(c, 8)
	sendAll(c)
	c.Tick(0)
	require.Equal(t, ActResend, c.Tick(10*time.Millisecond))
	psns, _ := sendAll(c)
	assert.Equal(t, []seq.U16{0, 1, 2, 3}, psns)
	assert.Equal(t, 8, c.Acked(7), "everything had arrived: only the acknowledgement was lost")
	assert.Equal(t, 5, c.window)
	assert.Zero(t, c.Unacked())
}

func TestConn_SlowStart(t *testing.T) {
	c := connected(64, 0)
	push(c, 64)
	psns, _ := sendAll(c)
	assert.Len(t, psns, firstWindow)
	for range 10 {
		c.Acked(c.una)
	}
	assert.Equal(t, firstWindow+10, c.window)
}

func TestConn_Receive(t *testing.T) {
	c := connected(64, 65535)
	kind, _ := c.AckKind()
	assert.Zero(t, kind, "nothing due")

	assert.True(t, c.Arrived(65535, false))
	kind, urgent := c.AckKind()
	assert.Equal(t, CtlAck, kind)
	assert.False(t, urgent, "it may wait for data")
	h := c.Control(kind, false)
	assert.Equal(t, seq.U16(65535), h.Ack)
	kind, _ = c.AckKind()
	assert.Zero(t, kind, "not due any more")

	assert.False(t, c.Arrived(65535, false), "a duplicate")
	kind, urgent = c.AckKind()
	assert.Equal(t, CtlAck, kind)
	assert.True(t, urgent, "our acknowledgement was lost")
	c.Control(kind, false)

	assert.False(t, c.Arrived(1, false), "0 is missing")
	kind, urgent = c.AckKind()
	assert.Equal(t, CtlNak, kind)
	assert.True(t, urgent)
	assert.Equal(t, seq.U16(65535), c.Control(kind, false).Ack)
	assert.False(t, c.Arrived(2, false), "one NAK for a gap")
	kind, _ = c.AckKind()
	assert.Zero(t, kind)

	assert.True(t, c.Arrived(0, true))
	kind, urgent = c.AckKind()
	assert.Equal(t, CtlAck, kind)
	assert.True(t, urgent, "the peer has requested it")
}

func TestConn_ManyDueAreUrgent(t *testing.T) {
	c := connected(64, 0)
	for i := range 16 {
		_, urgent := c.AckKind()
		assert.False(t, urgent)
		assert.True(t, c.Arrived(seq.U16(i), false))
	}
	_, urgent := c.AckKind()
	assert.True(t, urgent)
}

func TestConn_AckRequestFindsLostTail(t *testing.T) {
	c := connected(8, 0)
	c.Arrived(0, false)
	c.AckRequested(1)
	kind, urgent := c.AckKind()
	assert.Equal(t, CtlAck, kind)
	assert.True(t, urgent)
	c.Control(kind, false)
	for range 2 { // the NAK may be lost: another request causes another NAK
		c.AckRequested(3)
		kind, _ = c.AckKind()
		assert.Equal(t, CtlNak, kind)
		c.Control(kind, false)
	}
}

func TestConn_RequestsAckOnce(t *testing.T) {
	c := connected(2, 5)
	push(c, 2)
	assert.False(t, c.RequestAck(), "not while packets are to be sent: the last will ask")
	sendAll(c)
	assert.True(t, c.RequestAck())
	assert.False(t, c.RequestAck())
	assert.Equal(t, seq.U16(6), c.Last())
	c.Acked(6)
	push(c, 1)
	sendAll(c)
	assert.True(t, c.RequestAck(), "another last packet")
}

func TestConn_NothingDueBeforeItIsConnected(t *testing.T) {
	var c Conn
	c.Init(params(4))
	c.Start()
	assert.True(t, c.Arrived(0, true), "the CREP was lost, data was not")
	kind, _ := c.AckKind()
	assert.Zero(t, kind)
	c.Accept(2)
	kind, _ = c.AckKind()
	assert.Equal(t, CtlAck, kind)
}

// wire loses, duplicates and delays packets.
type wire struct {
	t     *rapid.T
	queue []Header
	lossy bool
}

func (w *wire) send(h Header) {
	fate := 0
	if w.lossy {
		fate = rapid.IntRange(0, 9).Draw(w.t, "fate")
	}
	switch fate {
	case 1, 2: // lost
	case 3:
		w.queue = append(w.queue, h, h)
	case 4: // overtakes the previous one
		w.queue = append(w.queue, h)
		if n := len(w.queue); n > 1 {
			w.queue[n-1], w.queue[n-2] = w.queue[n-2], w.queue[n-1]
		}
	default:
		w.queue = append(w.queue, h)
	}
}

func (w *wire) take() (Header, bool) {
	if len(w.queue) == 0 {
		return Header{}, false
	}
	h := w.queue[0]
	w.queue = w.queue[1:]
	return h, true
}

// endpoint sends numbered messages and expects those of the peer in order.
type endpoint struct {
	conn     *Conn
	out, in  *wire
	sent     int // number of messages pushed
	done     int // number of messages acknowledged
	received int
	base     seq.U16
}

func (e *endpoint) step(t *rapid.T, now time.Duration, want int) {
	for e.sent < want && !e.conn.Full() {
		assert.Equal(t, e.base.Add(e.sent), e.conn.Push())
		e.sent++
	}
	for e.conn.Sendable() {
		e.out.send(e.conn.Header(0))
	}
	for range rapid.IntRange(0, 4).Draw(t, "arrivals") {
		h, ok := e.in.take()
		if !ok {
			break
		}
		e.arrive(t, h)
	}
	if kind, urgent := e.conn.AckKind(); kind != 0 && (urgent || rapid.Bool().Draw(t, "idle")) {
		e.out.send(e.conn.Control(kind, false))
	}
	if e.conn.RequestAck() {
		e.out.send(e.conn.Control(CtlAck, true))
	}
	if act := e.conn.Tick(now); act == ActFail {
		t.Fatalf("gave up at %v", now)
	}
}

func (e *endpoint) arrive(t *rapid.T, h Header) {
	e.done += e.conn.Acked(h.Ack)
	require.LessOrEqual(t, e.done, e.sent)
	switch {
	case h.AM:
		if e.conn.Arrived(h.PSN, h.AckReq) {
			require.Equal(t, e.base.Add(e.received), h.PSN, "order")
			e.received++
		}
		return
	case h.ID == CtlNak:
		e.conn.Nak()
	}
	if h.AckReq {
		e.conn.AckRequested(h.PSN)
	}
}

// TestConn_DeliversInOrderOverAnyLine: for any loss, duplication and order of packets, every
// message arrives once and in order, and is acknowledged once, also when PSNs wrap.
func TestConn_DeliversInOrderOverAnyLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.SampledFrom([]int{1, 2, 3, 8, 40}).Draw(t, "window")
		base := seq.U16(rapid.Uint16().Draw(t, "base"))
		count := rapid.IntRange(1, 60).Draw(t, "count")
		ab, ba := &wire{t: t, lossy: true}, &wire{t: t, lossy: true}
		a := &endpoint{conn: connected(window, base), out: ab, in: ba, base: base}
		b := &endpoint{conn: connected(window, base), out: ba, in: ab, base: base}
		for _, c := range []*Conn{a.conn, b.conn} {
			c.p.PeerTimeout = time.Hour
		}
		rounds := 0
		for now := time.Duration(0); a.done < count || b.done < count; now += time.Millisecond {
			if rounds++; rounds > 300 {
				ab.lossy, ba.lossy = false, false // now all messages must arrive
			}
			require.Less(t, rounds, 5000)
			a.step(t, now, count)
			b.step(t, now, count)
		}
		assert.Equal(t, count, a.received)
		assert.Equal(t, count, b.received)
	})
}
