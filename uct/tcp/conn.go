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
	connIdle    connState = iota // nothing was sent yet
	connDialing                  // our attempt is under way
	connWaiting                  // for the peer's attempt: ours gave way to it, or there is no path
	connOpen
	connBroken // failed; Progress will tell the EPs
	connGone
)

// conn is the connection to one peer iface. It exists also before and without a socket, with what
// was posted unless it waits.
type conn struct {
	base.Slot // in Iface.known
	it        *Iface
	state     connState
	key       keypair.PublicKey // of the peer's iface
	secret    pairKey           // of both; nil before a handshake
	certName  string            // identity in the certificate of the peer, from the first link on; "" without TLS
	id        uint64            // of the open connection or of our attempt
	path      path              // how to dial; unknown where only the peer may dial
	addr      netip.AddrPort    // of the peer, for people; once an EP names it
	eps       base.List[*EP]
	unproven  *unproven // nil: nothing limits it
	err       error     // why it broke

	rail        uint32  // number of this connection to the peer, 0 for the first
	main        *conn   // of a rail: the first
	rails       []*conn // of the first: the others, nil where there is none
	railsDialed bool    // the rails were dialed
	dialsRails  bool    // the peer dials no rails

	link              // open only
	postWhenOpen bool // no request is taken before it is open
	attempt      *attempt
	tries        int
	replaces     uint64    // connection that the next attempt replaces
	deadline     time.Time // by which it must be open, while dialing and waiting
	// countsDial: it is one of it.dialing.
	countsDial bool

	within time.Duration // EPParams.Within of the EP that has made it

	tx            txQueue
	rx            rxState
	awaitingReply opList // operations that the peer will answer, in order

	sent     uint64 // requests sent
	acked    uint64 // of those, known to have been executed
	executed uint64 // requests of the peer executed
	gotBye   bool   // the peer has said that it closes in order
	sentBye  bool   // this side has
	lastGet  uint64 // value of sent at the last get: see EP.Fence

	host    alive.Peer
	unacked bool // in Iface.unacked

	hot        bool // polled by each Progress
	emptyReads int  // polls in a row that found nothing, while hot
	dirty      bool // in Iface.dirty
	watchesOut bool // for EPOLLOUT

	lastNak uint64 // tag of the last refusal, plus 1
}

// start begins to connect if that has not happened, or waits for the peer to connect if there is
// no path. Failures show in Progress.
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
		c.state = connWaiting // also for the peer, which may connect first
		it.dialQueue = append(it.dialQueue, c)
	}
	if err := it.tickEvery(deadlineTick); err != nil {
		c.fail(err)
	}
}

// maxDialing is how many connections an iface is dialing at a time. The time limit of the others has not begun: a
// worker that connects to thousands of peers takes longer for all of them than it may take for one.
const maxDialing = 256

// fewDialing is how many connections an iface is dialing at a time at least, even if all ifaces of the process are dialing
// maxDialing or more: the peers of others may not reply. 120 workers of a process that connect to each other dial 480
// connections at a time, in place of 14,000, which all take as long as the last one: 2,053 to
// 5,026 of them took longer than CONN_TIMEOUT, beside a load of 7 to 17.
const minDialing = 4

// dialing is how many connections all ifaces of the process are dialing.
var processDialing atomic.Int64

// mayDial reports whether the iface may dial one more connection now.
func (it *Iface) canDial() bool {
	return it.dialing < minDialing || it.dialing < maxDialing && processDialing.Load() < maxDialing
}

// countDial counts c as a connection that is being dialed, or not.
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

// becomePending begins the time in which c must open.
func (c *conn) startTimeout(now time.Time) {
	c.deadline = now.Add(c.openWithin())
	c.it.opening = append(c.it.opening, c)
}

// dialQueued dials as many of the queued connections as may be dialing.
func (it *Iface) dialQueued(now time.Time) {
	for len(it.dialQueue) > 0 && it.canDial() {
		c := it.dialQueue[0]
		it.dialQueue[0] = nil
		if it.dialQueue = it.dialQueue[1:]; c.state != connWaiting { // the peer has connected, or it has failed
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

// dialAll begins to connect, and to open the rails as soon as the connection is open: the peer
// does not dial.
func (c *conn) dialWithRails() {
	c.dialsRails = true
	if c.start(); c.state == connOpen {
		c.dialRails()
	}
}

// canSend reports that the connection is open, or opens without an address of the peer that is
// not known yet.
func (c *conn) canSend() bool {
	return c.state == connOpen || c.path.isKnown() && c.state != connIdle
}

// setPath gives a connection that is not open the path along which this side connects. If it was
// waiting for the peer to connect, it dials.
func (c *conn) setPath(p path) {
	waiting := c.state == connWaiting && !c.path.isKnown()
	if c.path = p; waiting {
		c.deadline = time.Now().Add(c.openWithin())
		c.dial()
	}
}

// openWithin is how long the connection may take to open.
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

// link is a connected socket, or the near end of a tunnel, and its place in the
// poller.
type link struct {
	fd   int // -1: none
	slot epoll.Watch
	tun  *tunnel.Tunnel // nil for a socket
}

// binding is what ties a handshake message to this link; nil without TLS.
func (l *link) binding() []byte {
	if l.tun == nil {
		return nil
	}
	return l.tun.Peer().Binding
}

// peerName is the identity in the certificate of the peer; "" without TLS.
func (l *link) peerName() string {
	if l.tun == nil {
		return ""
	}
	return l.tun.Peer().Name
}

// watch begins to report events to w; after an error the link is closed.
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
	_ = p.Forget(l.slot)
	l.fd = -1
	l.tun.OwnerClosed()
}

// open attaches a link that has been through the handshake.
func (c *conn) open(l link, id uint64) {
	it := c.it
	it.stopTimeout(c)
	if c.unproven != nil {
		_ = it.tickEvery(it.cfg.HelloTimeout / 4) // the timer ticks already
	}
	c.link, c.id, c.state, c.attempt, c.certName = l, id, connOpen, nil, l.peerName()
	if n := int(it.cfg.RxBuf); c.rx.buf == nil && c.unproven == nil {
		c.rx.buf = make([]byte, n)
	} else if c.rx.buf == nil {
		c.rx.buf = make([]byte, min(n, smallRx))
	}
	it.poll.Rewatch(l.slot, c)
	it.openCount++
	it.makeHot(c)
	it.freed = true
	c.markDirty()
	if c.dialsRails {
		c.dialRails()
	}
	c.checkEPs()
}

// checkEPs fails the EPs that want another peer than the one whose certificate the link has shown.
func (c *conn) checkEPs() {
	for _, e := range slices.Clone(c.eps.All()) {
		if err := c.checkPeer(e.peerName); err != nil && e.setFailed(err, ucs.StatusRejected) {
			e.reportFailed()
		}
	}
}

// checkPeer returns ErrRejected if the certificate of the peer is for another identity than name.
// "" permits all, as does a connection without TLS.
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

// fail breaks the connection; Progress tells the EPs and cleans up. Only the
// first reason counts, and that of a peer that has said that it leaves before any.
func (c *conn) fail(err error) {
	if c.state >= connBroken {
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

// endAll ends what was in flight on a broken connection and tells the EPs. It
// returns the completions. What these post on the EPs is refused.
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
	return n
}

// failEPs puts the EPs out of use; those that were so before leave the connection, as they
// have been told.
func (c *conn) failEPs(st ucs.Status) {
	for i := c.eps.Len() - 1; i >= 0; i-- {
		if e := c.eps.All()[i]; !e.setFailed(c.err, st) {
			c.eps.Remove(e)
		}
	}
}

// know enters c as the connection to its peer, or as a rail of that.
func (it *Iface) addConn(c *conn) {
	if c.main == nil {
		it.table[c.key] = c
	}
	it.known.Add(c)
}

// forget takes c out; nothing happens if it is not in.
func (it *Iface) removeConn(c *conn) {
	if it.known.Remove(c) && c.main == nil {
		delete(it.table, c.key)
	}
}

func (c *conn) markDirty() {
	if !c.dirty {
		c.dirty = true
		c.it.dirty = append(c.it.dirty, c)
	}
}
