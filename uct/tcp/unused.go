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
// old connection has been read. So a HELLO is not answered while the connection to its sender waits
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

// afterDecision as EP.postAfter makes posts wait while conn.closing is not closeNone. It is also the
// value of conn.lastGet then, because Fence copies that to EP.postAfter.
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

// closeUnusedLater makes the timer close c if no EP uses it for closeAfter.
func (c *conn) closeUnusedLater() {
	c.closesWhenDone = false
	after := c.closeAfter()
	if after == 0 || !c.canClose || c.state != connOpen || c.closing != closeNone || c.eps.Len() > 0 || c.unproven != nil {
		return
	}
	c.closeAt = time.Now().Add(after)
	c.watchUnused()
}

// watchUnused makes the timer call checkUnused.
func (c *conn) watchUnused() {
	it := c.it
	if !c.checksUnused {
		c.checksUnused = true
		it.unused = append(it.unused, c)
	}
	it.countUnused(c)
	_ = it.tickEvery(it.unusedTick) // without the timer, the connection remains open
}

// countUnused makes unusedTick short enough for c.
func (it *iface) countUnused(c *conn) {
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

// closeUnused checks the connections without EPs.
func (it *iface) closeUnused(now time.Time) {
	rest := it.unused[:0]
	for _, c := range it.unused {
		if c.checkUnused(now) {
			rest = append(rest, c)
		} else {
			c.checksUnused = false
		}
	}
	clear(it.unused[len(rest):])
	it.unused, it.unusedTick = rest, 0
	for _, c := range rest {
		it.countUnused(c)
	}
}

// checkUnused proposes to close c if it is due. It reports whether to check c again.
func (c *conn) checkUnused(now time.Time) bool {
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
	c.closesWhenDone = true // no timer: the peer may never reply or read
	return false
}

// done is called when the last reply was received or the queue is written, if closesWhenDone is set.
func (c *conn) done() {
	if c.awaitingReply.n == 0 && c.tx.empty() {
		c.closeUnusedLater()
	}
}

// isUnused reports whether no EP uses c, and the peer has executed all requests of this side.
func (c *conn) isUnused() bool {
	return c.state == connOpen && c.eps.Len() == 0 && c.sent == c.acked && c.awaitingReply.n == 0 && c.tx.empty() && !c.gotBye
}

// startClosing makes posts wait for the decision.
func (c *conn) startClosing(s closeState) {
	if c.closing == closeNone {
		c.lastGet, c.dialsRails = afterDecision, false
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
		c.watchUnused()
	}
	return nil
}

// replyUsed refuses to close c.
func (c *conn) replyUsed() error {
	c.sentUsed = true
	c.closeUnusedLater()
	return floodError(c.reply(frameUsed, 0, nil))
}

// handleUsed handles USED: the connection remains open.
func (c *conn) handleUsed() error {
	if c.closing != closeProposed {
		return errMalformed
	}
	c.closing, c.lastGet = closeNone, 0
	for _, e := range c.eps.All() {
		e.postAfter = 0
	}
	c.it.freed = true
	c.answerHeld()
	return nil
}

// release ends the use of c after the agreement, or if c breaks while it waits for the reply to UNUSED: the EPs have posted
// nothing. Progress closes the socket.
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
	c.answerHeld()
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

// receiveHello answers a HELLO, or holds it while the connection to its sender waits for a reply to
// UNUSED.
func (it *iface) receiveHello(s *incoming, h *hello) {
	c := it.table[h.from]
	if h.rail > 0 || c == nil || c.closing == closeNone {
		it.respond(s, h)
		return
	}
	if c.held != nil && c.held.fd >= 0 {
		c.held.refuse(errLaterHello)
	}
	c.held, s.held = s, true
}

// answerHeld answers the HELLO that c holds. Its sender may have closed the socket meanwhile.
func (c *conn) answerHeld() {
	s := c.held
	c.held = nil
	if s == nil || s.fd < 0 || c.it.closed || !s.checkHeld() {
		return
	}
	s.held = false
	h, _ := parseHello(&s.hello.buf, msgHello)
	c.it.respond(s, &h)
}

// checkHeld refuses a HELLO that is held if its sender has closed the socket, or has sent more. It
// reports whether the HELLO is still valid.
func (s *incoming) checkHeld() bool {
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
