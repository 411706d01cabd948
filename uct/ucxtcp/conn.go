package ucxtcp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/internal/alive"
	"github.com/gucx/gucx/uct/internal/epoll"
)

type connState uint8

const (
	connDialing connState = iota
	connMagic             // accepted: the magic number has not arrived
	connRequest           // accepted: the connection request has not arrived
	connStale             // accepted, but the peer will close it and use the connection that this side makes
	connOpen
	connBroken // failed; Progress will complete the operations and report to the EP
	connGone
)

// Conn is a connection to a peer. At most one EP of each side sends messages on it.
//
// The upper layer gets it from [Iface.Source] and [EP.Conn]. Only the goroutine that owns the iface
// may call its methods. They have no effect after the connection has ended.
type Conn struct {
	base.Slot // in Iface.conns
	// Data belongs to the upper layer. The transport does not use it.
	Data any

	it     *Iface
	fd     int // -1: none
	slot   epoll.Watch
	events uint32 // events that epoll reports
	state  connState
	ep     *EP            // EP that sends or will send; of a stale connection: the EP that is connecting
	peer   netip.AddrPort // address at which the peer listens; of an accepted connection: as the peer claims
	from   netip.AddrPort // remote address of the socket
	sn     uint64         // sequence number of an interface connection
	toEP   bool           // this is an endpoint connection
	remote uint64         // key of the peer's EP, if this side makes an endpoint connection
	early  []byte         // messages of an EP that was closed before the connection was open

	requested  bool      // our connection request is not acknowledged yet
	adopted    bool      // ... and the peer has made the connection before our EP existed
	peerSends  bool      // the peer may send messages
	gotFin     bool      // FIN was received
	closing    bool      // the connection is closed when everything is written and the peer has closed
	sentFin    bool      // FIN was queued
	handshaken bool      // the handshake is complete
	held       bool      // the connection is not read: see Hold
	resumed    bool      // in Iface.resumed
	deadline   time.Time // of a closing connection
	unnamed    *unnamed  // nil: an EP names the peer
	err        error     // why the connection failed

	due       uint8  // control frames to write, as flags
	putNumber uint32 // number of the last put of the peer, for its acknowledgement
	tx        txQueue
	rx        rxState
	frames    uint64 // number of frames received

	host    alive.Peer
	unacked bool // in Iface.unacked

	hot        bool // in Iface.hot
	emptyReads int  // number of consecutive reads without data, while hot
	dirty      bool // in Iface.dirty
}

// Peer returns the address at which the peer listens, as the peer claims.
func (c *Conn) Peer() netip.AddrPort { return c.peer }

// From returns the remote address of the socket.
func (c *Conn) From() netip.AddrPort { return c.from }

// Network returns the source of the connection: the remote IPv4 address, or its IPv6 network (/64).
func (c *Conn) Network() netip.Prefix { return sourceOf(c.from.Addr()) }

// Serial returns the sequence number of an interface connection among those with the same peer, and
// 0 for an endpoint connection.
func (c *Conn) Serial() uint64 { return c.sn }

// EP returns the EP of this side that uses the connection; nil if there is none.
func (c *Conn) EP() *EP { return c.ep }

// Hold pauses the connection: no message is delivered until Resume, not even one that has been read
// already. The peer stops sending when the buffers of the kernel are full. A handler may call Hold
// for the connection of its message.
func (c *Conn) Hold() {
	if c.state == connOpen && !c.held {
		c.held = true
		c.setEvents()
	}
}

// Resume ends Hold. Progress delivers the messages that were read before.
func (c *Conn) Resume() {
	if !c.held {
		return
	}
	c.held = false
	if c.state != connOpen {
		return
	}
	c.setEvents()
	if !c.resumed {
		c.resumed = true
		c.it.resumed = append(c.it.resumed, c)
	}
}

// Drop fails the connection because the peer violates the protocol of the upper layer. Its EP fails
// with ErrConnReset and cause, and does not connect again.
func (c *Conn) Drop(cause error) { c.malformed(cause) }

// End fails the connection because this side will not reply on it. Its EP fails as after Drop, but
// the connection is not counted as malformed.
func (c *Conn) End(cause error) {
	if c.state < connBroken {
		c.gotFin, c.adopted = false, false
		c.fail(fmt.Errorf("%w: %w", ucs.ErrConnReset, cause))
	}
}

// Ended reports whether the connection has failed or is closed.
func (c *Conn) Ended() bool { return c.state >= connBroken }

// setEvents sets the events that epoll reports.
func (c *Conn) setEvents() {
	if c.fd < 0 {
		return
	}
	events := uint32(0)
	if !c.held {
		events = unix.EPOLLIN
	}
	if c.state == connDialing || c.tx.watchesOut {
		events |= unix.EPOLLOUT
	}
	if events != c.events {
		c.events = events
		c.it.poll.Change(c.slot, events)
	}
}

// watch registers c for events of its socket. After an error the socket is closed.
func (c *Conn) watch(events uint32) error {
	slot, err := c.it.poll.Watch(c.fd, events, c)
	if err != nil {
		err = errors.Join(err, unix.Close(c.fd))
		c.fd = -1
		return err
	}
	c.slot, c.events = slot, events
	c.it.conns.Add(c)
	return nil
}

// Ready implements epoll.Watcher.
func (c *Conn) Ready(events uint32) int {
	switch c.state {
	case connDialing:
		c.handleDial()
		return 0
	case connStale:
		c.readStale()
		return 0
	case connBroken, connGone:
		return 0
	}
	if c.held && events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.fail(errNoFin)
		return 0
	}
	if c.state == connOpen {
		c.it.makeHot(c)
	}
	if c.tx.blocked || c.tx.watchesOut {
		c.unblock()
	}
	return c.receive()
}

// fail fails the connection. Progress then completes its operations and reports to the EP. The
// first error counts, except that after a FIN of the peer the error is ErrPeerClosed.
func (c *Conn) fail(err error) {
	if c.state >= connBroken {
		return
	}
	if c.gotFin && !errors.Is(err, ucs.ErrCanceled) {
		err = ucs.ErrPeerClosed
	}
	c.err, c.state = err, connBroken
	c.it.broken = append(c.it.broken, c)
}

// refuse closes an accepted connection because of an error in its handshake.
func (c *Conn) refuse(err error) {
	c.it.limits.refused.Inc()
	c.it.logRefusal(c, err)
	c.discard()
}

// malformed fails the connection because the peer sent an invalid frame.
func (c *Conn) malformed(err error) {
	if c.state < connBroken {
		c.it.limits.malformed.Inc()
		c.End(err)
	}
}

// discard closes the connection without a report to an EP.
func (c *Conn) discard() {
	it := c.it
	if c.state == connGone {
		return
	}
	c.state = connGone
	it.removeHot(c)
	c.untrackAcks()
	it.unnamed.remove(c.unnamed)
	c.unnamed = nil
	for _, m := range [...]map[peerID]*Conn{it.unexpected, it.closedEPs} {
		if id := (peerID{c.peer, c.sn}); m[id] == c {
			delete(m, id)
		}
	}
	it.conns.Remove(c)
	if c.fd >= 0 {
		_ = it.poll.Remove(c.slot)
		c.fd = -1
	}
	c.rx, c.tx.buf, c.early, c.ep = rxState{}, nil, nil, nil
}

// cleanUp completes the operations of a broken connection with st and reports the failure to the
// EP. It returns the number of completions. Posts by completions on the EP return an error.
func (c *Conn) cleanUp(st ucs.Status) (n int) {
	it, e := c.it, c.ep
	if e != nil && e.conn == c && c.adopted && e.dials && e.state == epReady {
		c.redial()
		return 0
	}
	report := e != nil && e.conn == c && e.setFailed(c.err, st)
	handshaken := c.handshaken
	if e != nil && e.conn == c {
		e.dropStale()
	}
	c.discard()
	if o := c.tx.zcopy; o != nil {
		c.tx.zcopy = nil
		it.complete(o, st)
		n++
	}
	if e != nil && e.conn == c {
		e.conn = nil
		n += e.completeFlushes(st)
	}
	if report {
		e.reportFailed()
	}
	if handshaken {
		it.onLeave(c, c.err)
	}
	return n
}

// redial makes a new connection for an EP whose connection has ended before the peer acknowledged
// our request: the EP had adopted a connection that the peer was closing at the same time.
func (c *Conn) redial() {
	it, e := c.it, c.ep
	e.conn = nil
	c.discard()
	it.onLeave(c, c.err)
	if e.state == epReady && e.conn == nil {
		e.dial()
	}
}

func (c *Conn) markDirty() {
	if !c.dirty {
		c.dirty = true
		c.it.dirty = append(c.it.dirty, c)
	}
}
