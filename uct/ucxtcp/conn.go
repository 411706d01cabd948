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
	connMagic             // accepted: the first bytes have not come
	connRequest           // accepted: the connection request has not come
	connStale             // accepted, but the peer gives way to our own attempt and closes it
	connOpen
	connBroken // failed; Progress will clean up
	connGone
)

// Conn is a connection to a peer. At most one EP of this side sends on it, and one of the peer.
//
// A layer above gets it from [Iface.Source] and [EP.Conn]. Methods must be called by the goroutine that owns
// the iface; those of a connection that has ended do nothing.
type Conn struct {
	base.Slot // in Iface.conns
	// Data is for the layer above; the transport does not touch it.
	Data any

	it     *Iface
	fd     int // -1: none
	slot   epoll.Watch
	events uint32 // that are reported
	state  connState
	ep     *EP            // that sends, or will send; of a stale connection, the EP that still connects
	peer   netip.AddrPort // where the peer listens; of an accepted one, as it says
	from   netip.AddrPort // the other end
	sn     uint64         // of an interface connection
	toEP   bool           // an endpoint connection
	remote uint64         // of an endpoint connection that this side makes: key of the peer's EP
	early  []byte         // of an EP that was closed before it could send

	requested  bool // our connection request is not acknowledged yet
	adopted    bool // ... and the peer has made the connection, before our EP was there
	peerSends  bool // messages of the peer are accepted
	gotFin     bool // the peer has said that it sends no more
	closing    bool // it ends when everything is written and the peer has closed
	sentFin    bool // this side has said that it sends no more
	handshaken bool // the handshake is over
	held       bool // not read: see Hold
	resumed    bool // in Iface.held
	deadline   time.Time
	unnamed    *unnamed // nil: an EP names the peer
	err        error    // why it broke

	due       uint8  // control frames to write
	putNumber uint32 // of the last put of the peer, for its acknowledgement
	tx        txQueue
	rx        rxState
	frames    uint64 // frames of the peer

	host    alive.Peer
	unacked bool // in Iface.unacked

	hot        bool // polled by each Progress
	emptyReads int  // polls in a row that found nothing, while hot
	dirty      bool // in Iface.dirty
}

// Peer is where the peer listens, as it says.
func (c *Conn) Peer() netip.AddrPort { return c.peer }

// From is the address at the other end of the connection.
func (c *Conn) From() netip.AddrPort { return c.from }

// Network tells sources of connections apart: the IPv4 address at the other end, or its network of IPv6 (/64).
func (c *Conn) Network() netip.Prefix { return sourceOf(c.from.Addr()) }

// Serial is the number of an interface connection among those with the peer, and 0 of an endpoint connection.
func (c *Conn) Serial() uint64 { return c.sn }

// EP is the endpoint of this side that uses the connection; nil if there is none.
func (c *Conn) EP() *EP { return c.ep }

// Hold stops reading: nothing more is delivered until Resume, not even what has been read already, and the
// peer's sends wait once the buffers of the kernel are full. A handler may hold the connection of its message.
func (c *Conn) Hold() {
	if c.state == connOpen && !c.held {
		c.held = true
		c.setEvents()
	}
}

// Resume ends Hold. What was read before is delivered by Progress.
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

// Drop breaks the connection because the peer does not keep to the protocol of the layer above. Its EP fails
// with ErrConnReset and cause, and does not connect again.
func (c *Conn) Drop(cause error) { c.malformed(cause) }

// End breaks the connection because the peer gets no answer on it. Its EP fails as after Drop, but the end does not count as
// that of a peer that breaks the protocol.
func (c *Conn) End(cause error) {
	if c.state < connBroken {
		c.gotFin, c.adopted = false, false
		c.fail(fmt.Errorf("%w: %w", ucs.ErrConnReset, cause))
	}
}

// Ended reports that the connection is broken or closed.
func (c *Conn) Ended() bool { return c.state >= connBroken }

// setEvents sets what the kernel reports.
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

// watch begins to report events of the socket; after an error it is closed.
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

// fail breaks the connection; Progress tells the EP and cleans up. Only the first reason counts.
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

// refuse ends an accepted connection whose handshake has gone wrong.
func (c *Conn) refuse(err error) {
	c.it.limits.refused.Inc()
	c.it.logRefusal(c, err)
	c.discard()
}

// malformed breaks the connection because of what the peer sent.
func (c *Conn) malformed(err error) {
	if c.state < connBroken {
		c.it.limits.malformed.Inc()
		c.End(err)
	}
}

// discard closes a connection that has no EP, or none that depends on it.
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
		_ = it.poll.Forget(c.slot)
		c.fd = -1
	}
	c.rx, c.tx.buf, c.early, c.ep = rxState{}, nil, nil, nil
}

// endAll completes what was in flight on a broken connection and tells the EP. It
// returns the completions. What these post on the EP is refused.
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

// redial makes a connection for an EP in place of that of the peer, which has ended before it acknowledged our request: the peer
// has closed it at the same time, when its own EP was closed.
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
