package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/internal/alive"
	"github.com/gucx/gucx/uct/internal/epoll"
	"github.com/gucx/gucx/uct/tcp/internal/tunnel"
)

type connState uint8

const (
	connIdle    connState = iota // no operation was posted yet
	connDialing                  // this side is connecting
	connWaiting                  // this side waits for the peer to connect: its own attempt yielded, there is no path, or it is in dialQueue
	connOpen
	connReleased // closed by agreement with the peer; Progress will close the socket
	connBroken   // failed; Progress will complete the operations and report to the EPs
	connGone
)

// conn is the connection to one peer iface. It exists also without a socket; unless postWhenOpen is
// set, it then queues posted frames.
type conn struct {
	base.Slot // in iface.known
	it        *iface
	state     connState
	key       keypair.PublicKey // of the peer's iface
	secret    pairKey           // shared key of both ifaces; nil before a handshake
	certName  string            // identity in the certificate of the peer, set by the first link; "" without TLS
	id        uint64            // id of the open connection, or of our attempt
	path      path              // addresses for dialing; not set if only the peer may dial
	addr      netip.AddrPort    // address of the peer for error texts; set by the first EP
	eps       base.List[*endpoint]
	unproven  *unproven // nil: the connection has no limits
	err       error     // why it broke

	rail        uint32  // index of this connection to the peer: 0 for the first, from 1 for rails
	main        *conn   // of a rail: the first connection
	rails       []*conn // of the first connection: the rails, nil where there is none
	railsDialed bool    // dialRails has dialed the rails
	dialsRails  bool    // this side dials the rails as soon as the connection is open

	link              // open only
	postWhenOpen bool // posts return ErrNoResource until the connection is open
	attempt      *attempt
	tries        int
	replaces     uint64    // id of the connection that the next attempt replaces
	deadline     time.Time // time limit for opening
	countsDial   bool      // iface.dialing includes this connection

	within time.Duration // EPParams.Within of the first EP

	tx            txQueue
	rx            rxState
	awaitingReply opList // operations with an expected reply, in the order of the replies

	sent     uint64 // number of requests sent
	acked    uint64 // number of these that the peer has executed, as far as known
	executed uint64 // number of requests of the peer that this side has executed
	gotBye   bool   // BYE was received
	sentBye  bool   // BYE was queued
	lastGet  uint64 // value of sent after the last get: see EP.Fence

	host    alive.Peer
	unacked bool // in iface.unacked

	hot        bool // in iface.hot
	emptyReads int  // number of consecutive reads without data, while hot
	dirty      bool // in iface.dirty
	watchesOut bool // epoll reports EPOLLOUT

	lastNak uint64 // tag of the last NAK, plus 1

	canClose bool // both sides know UNUSED and have no rails
	closing  closeState
	sentUsed bool // this side has refused to close the connection
	inUnused bool // in iface.unused
	// closesWhenDrained: startCloseTimer is called when all replies have arrived and the queue is written.
	closesWhenDrained bool
	closeAt           time.Time // when the connection is closed if no EP uses it
	deferredHello     *incoming // a HELLO of the peer, to which this side replies when closing is closeNone or the connection is gone
}

// start connects an idle connection, or waits for the peer to connect if there is no path. Progress
// reports failures.
func (c *conn) start() {
	if c.state != connIdle {
		return
	}
	if !c.postWhenOpen {
		c.tx.grow(c.it)
	}
	it := c.it
	c.tries = 0
	switch {
	case !c.path.isKnown():
		c.state = connWaiting
		c.startTimeout(time.Now())
	case it.canDial():
		c.countDial(true)
		c.startTimeout(time.Now())
		c.dial()
		return
	default:
		c.state = connWaiting // the peer may connect first
		it.dialQueue = append(it.dialQueue, c)
	}
	if err := it.tickEvery(deadlineTick); err != nil {
		c.fail(err)
	}
}

// maxDialing is the number of connections that an iface dials at a time. The timeout of the others
// starts when they are dialed: connecting to thousands of peers takes longer than the timeout of
// one connection.
const maxDialing = 256

// minDialing is the number of connections that an iface may dial at a time even if all ifaces of
// the process are dialing maxDialing or more, whose peers may not reply. If 120 workers of a
// process connect to each other, they dial 480 connections at a time. With 14,000 at a time, all
// took as long as the last one, and 2,053 to 5,026 of them took longer than CONN_TIMEOUT at a load
// of 7 to 17.
const minDialing = 4

// processDialing is the number of connections that all ifaces of the process are dialing.
var processDialing atomic.Int64

// canDial reports whether the iface may dial one more connection now.
func (it *iface) canDial() bool {
	return it.dialing < minDialing || it.dialing < maxDialing && processDialing.Load() < maxDialing
}

// countDial adds c to the connections that are being dialed, or removes it.
func (c *conn) countDial(counts bool) {
	if c.countsDial == counts {
		return
	}
	n := -1
	if c.countsDial = counts; counts {
		n = 1
	}
	c.it.dialing += n
	processDialing.Add(int64(n))
}

// startTimeout starts the timeout for opening c.
func (c *conn) startTimeout(now time.Time) {
	c.deadline = now.Add(c.openWithin())
	c.it.opening = append(c.it.opening, c)
}

// dialQueued dials queued connections while canDial is true.
func (it *iface) dialQueued(now time.Time) {
	for len(it.dialQueue) > 0 && it.canDial() {
		c := it.dialQueue[0]
		it.dialQueue[0] = nil
		if it.dialQueue = it.dialQueue[1:]; c.state != connWaiting { // the peer has connected, or the connection has failed
			continue
		}
		c.countDial(true)
		c.startTimeout(now)
		c.dial()
	}
	if len(it.dialQueue) == 0 {
		it.dialQueue = nil
	}
}

// dialWithRails connects, and dials the rails as soon as the connection is open, because the peer
// does not dial.
func (c *conn) dialWithRails() {
	c.dialsRails = true
	if c.start(); c.state == connOpen {
		c.dialRails()
	}
}

// canSend reports whether the connection is open, or will open without a new address of the peer.
func (c *conn) canSend() bool {
	return c.state == connOpen || c.path.isKnown() && c.state != connIdle
}

// setPath sets the path by which this side connects, before the connection is open. If the
// connection was waiting for the peer to connect, setPath dials.
func (c *conn) setPath(p path) {
	waiting := c.state == connWaiting && !c.path.isKnown()
	if c.path = p; waiting {
		c.deadline = time.Now().Add(c.openWithin())
		c.dial()
	}
}

// openWithin returns the timeout for opening the connection.
func (c *conn) openWithin() time.Duration {
	d := c.it.cfg.ConnTimeout
	switch {
	case c.within == 0:
	case c.path.isKnown():
		d = min(d, c.within)
	default: // the peer has its own configuration
		d = max(d, c.within)
	}
	return d
}

// link is a connected socket, or the owner's end of a tunnel, with its registration in the poller.
type link struct {
	fd   int // -1: none
	slot epoll.Watch
	tun  *tunnel.Tunnel // nil without TLS
}

// binding returns the channel binding of the TLS session, which the proof of a handshake message
// covers; nil without TLS.
func (l *link) binding() []byte {
	if l.tun == nil {
		return nil
	}
	return l.tun.Peer().Binding
}

// peerName returns the identity in the certificate of the peer; "" without TLS.
func (l *link) peerName() string {
	if l.tun == nil {
		return ""
	}
	return l.tun.Peer().Name
}

// watch registers w for events of the link. After an error the link is closed.
func (l *link) watch(p *epoll.Poller, events uint32, w epoll.Watcher) error {
	slot, err := p.Watch(l.fd, events, w)
	if err == nil {
		l.slot = slot
		return nil
	}
	err = errors.Join(err, unix.Close(l.fd))
	l.fd = -1
	l.tun.OwnerClosed()
	return err
}

// close closes the descriptor, if there is one.
func (l *link) close(p *epoll.Poller) {
	if l.fd < 0 {
		return
	}
	_ = p.Remove(l.slot)
	l.fd = -1
	l.tun.OwnerClosed()
}

// open attaches a link after its handshake.
func (c *conn) open(l link, id uint64) {
	it := c.it
	it.stopTimeout(c)
	if c.unproven != nil {
		_ = it.tickEvery(it.cfg.HelloTimeout / 4) // cannot fail: the timer is running
	}
	c.link, c.id, c.state, c.attempt, c.certName = l, id, connOpen, nil, l.peerName()
	if n := int(it.cfg.RxBuf); c.rx.buf == nil && c.unproven == nil {
		c.rx.buf = make([]byte, n)
	} else if c.rx.buf == nil {
		c.rx.buf = make([]byte, min(n, smallRx))
	}
	it.poll.SetWatcher(l.slot, c)
	it.openCount++
	it.makeHot(c)
	it.freed = true
	c.markDirty()
	if c.dialsRails {
		c.dialRails()
	}
	c.checkEPs()
	c.startCloseTimer()
}

// checkEPs fails the EPs that require another identity than that of the peer's certificate.
func (c *conn) checkEPs() {
	for _, e := range slices.Clone(c.eps.All()) {
		if err := c.checkPeer(e.peerName); err != nil && e.setFailed(err, ucs.StatusRejected) {
			e.reportFailed()
		}
	}
}

// checkPeer returns ErrRejected if the certificate of the peer is for another identity than name.
// It permits all identities if name is "", and without TLS.
func (c *conn) checkPeer(name string) error {
	if name == "" || c.state != connOpen || c.tun == nil || c.certName == name {
		return nil
	}
	return fmt.Errorf("%w: the certificate of this address is for %q, and that of the worker for %q", ucs.ErrRejected, c.certName, name)
}

// Ready implements epoll.Watcher.
func (c *conn) Ready(events uint32) int {
	c.it.makeHot(c)
	if c.tx.blocked || c.watchesOut {
		c.unblock()
	}
	return c.receive()
}

// fail fails the connection. Progress then completes its operations and reports to the EPs. The
// first error counts, except that after a BYE of the peer the error is ErrPeerClosed.
func (c *conn) fail(err error) {
	if c.state >= connReleased {
		return
	}
	if c.closing == closeAgreed || c.closing == closeProposed && !c.gotBye && !c.it.closed { // nothing was lost
		c.release()
		return
	}
	if err = c.tun.Cause(err); c.gotBye {
		err = ucs.ErrPeerClosed
	}
	if c.state == connOpen {
		c.it.openCount--
	}
	if c.attempt != nil {
		c.attempt.drop()
		c.attempt = nil
	}
	c.it.stopTimeout(c)
	c.it.unproven.remove(c.unproven)
	c.unproven = nil
	open := c.state == connOpen
	c.err, c.state = err, connBroken
	c.it.removeConn(c)
	c.it.broken = append(c.it.broken, c)
	if c.main != nil {
		c.main.railFailed(c, open)
	}
	for _, r := range c.rails {
		if r != nil {
			r.fail(c.err)
		}
	}
}

// cleanUp completes the operations of a broken connection with st and reports the failure to the
// EPs. It returns the number of completions. Posts by completions on the EPs return an error.
func (c *conn) cleanUp(st ucs.Status) (n int) {
	it := c.it
	it.removeHot(c)
	c.untrackAcks()
	c.link.close(&it.poll)
	c.failEPs(st)
	for o := c.tx.popUnsent(); o != nil; o = c.tx.popUnsent() {
		if o.kind == opAM {
			it.complete(o, st)
			n++
		}
	}
	for o := c.awaitingReply.pop(); o != nil; o = c.awaitingReply.pop() {
		it.complete(o, st)
		n++
	}
	c.rx = rxState{}
	c.tx = txQueue{}
	c.state = connGone
	for c.eps.Len() > 0 {
		e := c.eps.All()[0]
		c.eps.Remove(e)
		e.reportFailed()
	}
	c.answerDeferredHello()
	return n
}

// failEPs sets the EPs to failed. EPs that failed before are removed from the connection, because
// their failure was reported.
func (c *conn) failEPs(st ucs.Status) {
	for i := c.eps.Len() - 1; i >= 0; i-- {
		if e := c.eps.All()[i]; !e.setFailed(c.err, st) {
			c.eps.Remove(e)
		}
	}
}

// addConn adds c to the open and connecting connections.
func (it *iface) addConn(c *conn) {
	if c.main == nil {
		it.table[c.key] = c
	}
	it.known.Add(c)
}

// removeConn removes c. It has no effect if c was removed before.
func (it *iface) removeConn(c *conn) {
	if !it.known.Remove(c) {
		return
	}
	it.traffic.Closed(c.sent, c.executed)
	if c.main == nil {
		delete(it.table, c.key)
	}
}

func (c *conn) markDirty() {
	if !c.dirty {
		c.dirty = true
		c.it.dirty = append(c.it.dirty, c)
	}
}
