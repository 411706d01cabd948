package tcp

import (
	"math"
	"time"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// Both sides close a connection that no EP of either side uses, by agreement:
//
//   - A side proposes it by UNUSED if it has had no EP for IfaceParams.IdleTimeout, and the peer has
//     executed all its requests. It then posts nothing until the peer has replied. Posts of EPs that
//     are made meanwhile return ErrNoResource.
//   - A peer in the same state replies with UNUSED, or has sent its own UNUSED already. Both have
//     agreed, and close their sockets. Each UNUSED follows everything that its sender has sent, so
//     nothing is lost. EPs that were made meanwhile have posted nothing: they use the next connection.
//   - Otherwise the peer replies with USED, and the connection remains open. The peer proposes when
//     its last EP is closed.
//
// A peer that has agreed and closed may dial at once. Its HELLO can arrive before its UNUSED over the
// old connection has been read. So the reply to a HELLO is deferred while the connection to its sender waits
// for the reply to UNUSED.
//
// Connections with rails, and to the own iface, remain open. So do those to a peer whose handshake
// message does not contain featureUnused. docs/design/0020-idle-lanes.md has the reasons.

// closeState is the progress of closing a connection that no EP uses.
type closeState uint8

const (
	closeNone     closeState = iota
	closeProposed            // UNUSED was sent, and the peer has not replied
	closeAgreed              // both sides have sent UNUSED
)

// afterDecision as EP.postAfter makes posts wait while conn.closing is not closeNone.
const afterDecision = math.MaxUint64 - 1

// featureUnused in a handshake message: its sender knows UNUSED and USED, and has no rails.
const featureUnused = 1

// closeDelay is the time without EPs after which a side without IdleTimeout proposes to close a
// connection, if the peer has proposed it before.
const closeDelay = time.Second

// minUnusedTick is the minimum interval at which unused connections are checked.
const minUnusedTick = time.Millisecond

// features returns the features of a handshake message of this side.
func (it *iface) features() uint32 {
	if it.cfg.ConnsPerPeer > 1 {
		return 0
	}
	return featureUnused
}

// canClose reports whether a connection to peer may be closed when no EP uses it.
func (it *iface) canClose(peer *keypair.PublicKey, features uint32) bool {
	return features&it.features()&featureUnused != 0 && *peer != it.addr.key
}

// closeAfter returns the time without EPs after which c is closed; 0 for never.
func (c *conn) closeAfter() time.Duration {
	switch it := c.it; {
	case it.closed:
		return 0
	case it.idleTimeout == 0 && c.sentUsed:
		return closeDelay
	default:
		return it.idleTimeout
	}
}

// startCloseTimer makes the timer close c if no EP uses it for closeAfter.
func (c *conn) startCloseTimer() {
	c.closesWhenDrained = false
	after := c.closeAfter()
	if after == 0 || !c.canClose || c.state != connOpen || c.closing != closeNone || c.eps.Len() > 0 || c.unproven != nil {
		return
	}
	c.closeAt = time.Now().Add(after)
	c.addUnused()
}

// addUnused adds c to iface.unused, so that the timer calls closeIfDue.
func (c *conn) addUnused() {
	it := c.it
	if !c.inUnused {
		c.inUnused = true
		it.unused = append(it.unused, c)
	}
	it.shortenUnusedTick(c)
	_ = it.tickEvery(it.unusedTick) // without the timer, the connection remains open
}

// shortenUnusedTick shortens iface.unusedTick to the interval that c needs.
func (it *iface) shortenUnusedTick(c *conn) {
	tick := deadlineTick
	if c.closing == closeNone {
		tick = unusedTick(c.closeAfter())
	}
	if it.unusedTick == 0 || tick < it.unusedTick {
		it.unusedTick = tick
	}
}

// unusedTick returns the interval of checks for a timeout.
func unusedTick(timeout time.Duration) time.Duration { return max(timeout/4, minUnusedTick) }

// checkUnusedConns calls closeIfDue for the connections in iface.unused.
func (it *iface) checkUnusedConns(now time.Time) {
	rest := it.unused[:0]
	for _, c := range it.unused {
		if c.closeIfDue(now) {
			rest = append(rest, c)
		} else {
			c.inUnused = false
		}
	}
	clear(it.unused[len(rest):])
	it.unused, it.unusedTick = rest, 0
	for _, c := range rest {
		it.shortenUnusedTick(c)
	}
}

// closeIfDue proposes to the peer to close c if c is unused and closeAt has passed. It releases c if both sides have agreed
// and the queue is written. It reports whether to check c again.
func (c *conn) closeIfDue(now time.Time) bool {
	switch {
	case c.state != connOpen || c.closing == closeProposed:
		return false
	case c.closing == closeAgreed: // UNUSED of this side was not written completely
		if c.tx.empty() {
			c.release()
		}
		return c.state == connOpen
	case c.eps.Len() > 0:
		return false
	case now.Before(c.closeAt):
		return true
	case c.isUnused():
		c.startClosing(closeProposed)
		c.sendUnused()
		return false
	}
	if c.sent > c.acked && c.awaitingReply.n == 0 && c.tx.empty() && c.requestFlush(nil, nil) != nil {
		c.closeAt = now.Add(c.closeAfter()) // the resources may belong to another connection
		return true
	}
	c.closesWhenDrained = true // no timer: the peer may never reply or read
	return false
}

// startCloseTimerIfDrained calls startCloseTimer if all replies have arrived and the queue is written. It is called
// if closesWhenDrained is set.
func (c *conn) startCloseTimerIfDrained() {
	if c.awaitingReply.n == 0 && c.tx.empty() {
		c.startCloseTimer()
	}
}

// isUnused reports whether no EP uses c, and the peer has executed all requests of this side.
func (c *conn) isUnused() bool {
	return c.state == connOpen && c.eps.Len() == 0 && c.sent == c.acked && c.awaitingReply.n == 0 && c.tx.empty() && !c.gotBye
}

// startClosing sets closing to s, which is not closeNone. EPs that are made later must wait for the decision.
func (c *conn) startClosing(s closeState) {
	if c.closing == closeNone {
		c.dialsRails = false
	}
	c.closing = s
}

// sendUnused sends UNUSED. The queue is empty.
func (c *conn) sendUnused() {
	if c.tx.buf == nil {
		c.tx.growTo(0) // replies fit
	}
	c.reply(frameUnused, 0, nil)
	c.flush()
}

// handleUnused handles UNUSED: the peer has no EP and waits for a reply.
func (c *conn) handleUnused() error {
	switch {
	case !c.canClose || c.closing == closeAgreed:
		return errMalformed
	case c.closing == closeNone:
		if c.flush(); c.state != connOpen {
			return nil
		}
		if !c.isUnused() {
			return c.replyUsed()
		}
		c.startClosing(closeAgreed)
		c.sendUnused()
	}
	c.startClosing(closeAgreed)
	switch {
	case c.state != connOpen:
	case c.tx.empty():
		c.release()
	default:
		c.addUnused()
	}
	return nil
}

// replyUsed replies with USED: c remains open.
func (c *conn) replyUsed() error {
	c.sentUsed = true
	c.startCloseTimer()
	return floodError(c.reply(frameUsed, 0, nil))
}

// handleUsed handles USED: the connection remains open.
func (c *conn) handleUsed() error {
	if c.closing != closeProposed {
		return errMalformed
	}
	c.closing = closeNone
	for _, e := range c.eps.All() {
		e.postAfter = 0
	}
	c.it.freed = true
	c.answerDeferredHello()
	return nil
}

// release ends the use of c after both sides have agreed, or if c breaks while it waits for the reply to UNUSED. The EPs
// have posted nothing. Progress closes the socket.
func (c *conn) release() {
	it := c.it
	c.state = connReleased
	it.openCount--
	it.unproven.remove(c.unproven)
	c.unproven = nil
	it.broken = append(it.broken, c)
}

// closeReleased closes the socket of c. EPs that were made since UNUSED use a new connection.
func (c *conn) closeReleased() {
	it := c.it
	it.removeHot(c)
	c.untrackAcks()
	c.link.close(&it.poll)
	it.removeConn(c)
	c.rx, c.tx, c.state = rxState{}, txQueue{}, connGone
	next := c.moveEPs()
	c.answerDeferredHello()
	if next != nil && next.dialsRails {
		next.start()
	}
}

// moveEPs moves the EPs to a new connection, which it returns; nil if there are none. They have not
// posted anything, so they do not refer to the state of c.
func (c *conn) moveEPs() *conn {
	if c.eps.Len() == 0 {
		return nil
	}
	n := &conn{it: c.it, key: c.key, secret: c.secret, path: c.path, addr: c.addr, link: link{fd: -1},
		postWhenOpen: c.postWhenOpen, dialsRails: c.dialsRails, within: c.within}
	c.it.addConn(n)
	for c.eps.Len() > 0 {
		e := c.eps.All()[0]
		c.eps.Remove(e)
		n.eps.Add(e)
		e.conn, e.postAfter = n, 0
	}
	return n
}

// receiveHello replies to a HELLO, or defers the reply while the connection to its sender waits for a reply to
// UNUSED.
func (it *iface) receiveHello(s *incoming, h *hello) {
	c := it.table[h.from]
	if h.rail > 0 || c == nil || c.closing == closeNone {
		it.respond(s, h)
		return
	}
	if c.deferredHello != nil && c.deferredHello.fd >= 0 {
		c.deferredHello.refuse(errLaterHello)
	}
	c.deferredHello, s.deferred = s, true
}

// answerDeferredHello replies to the deferred HELLO, unless its sender has closed the socket in the meantime.
func (c *conn) answerDeferredHello() {
	s := c.deferredHello
	c.deferredHello = nil
	if s == nil || s.fd < 0 || c.it.closed || !s.checkDeferred() {
		return
	}
	s.deferred = false
	h, _ := parseHello(&s.hello.buf, msgHello)
	c.it.respond(s, &h)
}

// checkDeferred refuses a deferred HELLO if its sender has closed the socket, or has sent more bytes. It
// reports whether the HELLO is still valid.
func (s *incoming) checkDeferred() bool {
	var b [1]byte
	n, errno := s.it.io.Recv(s.fd, b[:])
	switch {
	case sockio.Retry(errno):
		return true
	case errno == 0 && n > 0:
		s.refuse(errGarbage)
	default:
		s.refuse(errDisconnected)
	}
	return false
}
