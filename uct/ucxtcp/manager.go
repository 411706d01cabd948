package ucxtcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// The connection manager: who may send on a connection.
//
// An interface connection carries messages of the side that has sent a connection request, once it is
// acknowledged. The other side may join by an ACK that is a request too (eventAckRequest), or later by a
// request of its own on the same connection. Of two attempts that cross, the connection of the side with the
// lower address stays: the other side closes its own and joins. A side that sends no more says so
// (eventFin), and the connection ends when neither sends.
//
// An endpoint connection carries messages of both sides from the request on, and ends when one closes it.

// Control frames that a connection has to write, in the order in which they go.
const (
	dueRequest = 1 << iota
	dueAck
	dueAckRequest
	duePutAck
	dueKeepAlive
	dueFin
)

// controlRoom is the room in the transmit buffer for control frames, in bytes: one of each.
const controlRoom = 128

// The errors of handshakes.
var (
	errNotUCX         = errors.New("it does not speak this protocol")
	errNoRequest      = errors.New("it begins with another frame than a connection request")
	errRequestTimeout = errors.New("it sent no connection request in time")
	errSource         = errors.New("it listens on another IP address than it connects from (ANY_SOURCE)")
	errNoKey          = errors.New("no endpoint here waits for that key")
	errConnected      = errors.New("the endpoint that the request is for has a connection")
	errInvalidEvent   = errors.New("connection event that does not fit the state of the connection")
)

// dial begins to connect. Failures show in Progress.
func (e *EP) dial() {
	it := e.it
	c := &Conn{it: it, ep: e, state: connDialing, peer: e.peer, from: e.peer, sn: e.sn, toEP: e.key != 0,
		remote: e.remote}
	fd, err := it.connectTo(e.peer)
	if err == nil {
		c.fd = fd
		err = c.watch(unix.EPOLLOUT)
	}
	if err != nil {
		e.fail(unreachable(err))
		return
	}
	e.conn = c
}

func unreachable(err error) error { return fmt.Errorf("%w: connect: %w", uct.ErrUnreachable, err) }

// dialEnded sends the connection request if the socket is connected.
func (c *Conn) handleDial() {
	v, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && v != 0 {
		err = unix.Errno(v)
	}
	if err != nil {
		c.fail(unreachable(err))
		return
	}
	c.tx.growTo(int(c.it.cfg.TxBuf))
	c.rx.buf = make([]byte, c.it.cfg.RxBuf)
	binary.LittleEndian.PutUint64(c.tx.buf, magic)
	c.tx.tail = magicLen
	c.state, c.handshaken = connOpen, true
	c.setEvents()
	c.due |= dueRequest
	c.flush()
	if c.toEP {
		c.peerSends = true
		c.allowSend()
	} else {
		c.requested = true
	}
	c.it.makeHot(c)
	c.markDirty()
}

// opened lets the EP send.
func (c *Conn) allowSend() {
	e := c.ep
	c.requested, c.adopted = false, false
	if e == nil {
		c.sendEarly(c.early)
		c.early = nil
		c.sendFin()
		return
	}
	c.tx.growTo(int(c.it.cfg.TxBuf))
	e.sends = e.state == epReady
	e.opened = e.opened || e.sends
	e.clearDeadline()
	e.dropStale()
	c.sendEarly(e.takeEarly())
	c.it.freed = true
	c.it.pollEpollNext()
}

// send queues messages that were posted before the connection was open, behind control frames.
func (c *Conn) sendEarly(early []byte) {
	if len(early) == 0 {
		return
	}
	c.queueControl()
	q := &c.tx
	q.growTo(q.tail + len(early))
	q.tail += copy(q.buf[q.tail:], early)
	c.flush()
	c.markDirty()
}

// attach gives the connection of a peer that an EP now names to that EP.
func (c *Conn) attach(e *EP) {
	it := c.it
	c.ep, e.conn = e, c
	it.unnamed.remove(c.unnamed)
	c.unnamed = nil
	c.rx.growTo(int(it.cfg.RxBuf))
	c.tx.growTo(int(it.cfg.TxBuf))
}

// adopt has an EP send on a connection that the peer has made before the EP was there.
func (c *Conn) adopt(e *EP) {
	c.attach(e)
	c.requested, c.adopted = true, true
	c.due |= dueRequest
	d := c.it.cfg.ConnTimeout
	e.setDeadline(time.Now().Add(max(d, e.within)))
	c.flush()
	c.markDirty()
}

// request is what this side asks of the peer.
func (c *Conn) request() request {
	r := request{toEP: c.toEP, conn: c.sn, listen: c.it.listen}
	if c.toEP {
		r.conn = c.remote
	}
	return r
}

// takeRequest handles the request with which an accepted connection begins.
func (c *Conn) handleRequest(b []byte) {
	it := c.it
	r, ok := parseRequest(b)
	if !ok || binary.LittleEndian.Uint32(b[offEvent:]) != eventRequest || r.listen.Addr().Is4() != it.dev.ip.Is4() {
		c.refuse(errNotUCX)
		return
	}
	if !it.mayListen(r.listen, c.from.Addr()) {
		c.refuse(fmt.Errorf("%w: %v and %v", errSource, r.listen.Addr(), c.from.Addr()))
		return
	}
	c.peer, c.toEP = r.listen, r.toEP
	if r.toEP {
		c.handleEPRequest(r.conn)
	} else {
		c.sn = r.conn
		c.handleIfaceRequest()
	}
}

// takeEPRequest gives an endpoint connection to the EP that has the key.
func (c *Conn) handleEPRequest(key uint64) {
	e := c.it.byKey[key]
	switch {
	case e == nil || e.state != epReady:
		c.refuse(errNoKey)
	case e.conn != nil:
		c.refuse(errConnected)
	case e.peer.IsValid() && e.peer != c.peer:
		c.refuse(fmt.Errorf("%w: the endpoint is connected to %v", errNoKey, e.peer))
	default:
		e.peer = c.peer
		c.attach(e)
		c.completeAccept()
		if e.remote == 0 {
			c.Hold() // until Connect
		}
		c.allowSend()
	}
}

// takeIfaceRequest finds the EP that belongs to an interface connection.
func (c *Conn) handleIfaceRequest() {
	it := c.it
	id := peerID{c.peer, c.sn}
	e := it.byPeer[id]
	if c.peer == it.listen {
		e = nil // our own attempt to connect to this iface
	}
	switch {
	case e == nil || e.state != epReady:
		if c.peer != it.listen {
			it.unexpected[id] = c
		}
		c.due |= dueAck
		c.completeAccept()
	case e.conn == nil:
		c.join(e)
	case e.sends || e.conn.peerSends || e.stale != nil:
		c.refuse(errConnected)
	case it.listen.Compare(c.peer) > 0: // attempts cross, and the peer's goes on
		own := e.conn
		e.conn = nil
		own.discard()
		c.join(e)
	default:
		it.unnamed.remove(c.unnamed)
		c.unnamed = nil
		c.state, c.ep, e.stale = connStale, e, c
	}
}

// join answers the request of a peer with one of our own.
func (c *Conn) join(e *EP) {
	c.due |= dueAckRequest
	c.attach(e)
	c.completeAccept()
	c.allowSend()
}

// accepted ends the handshake of an accepted connection.
func (c *Conn) completeAccept() {
	c.state, c.handshaken, c.peerSends = connOpen, true, true
	c.it.makeHot(c)
	c.markDirty()
}

// readStale closes a stale connection once the peer has closed it or breaks the rules.
func (c *Conn) readStale() {
	var b [1]byte
	n, errno := c.it.io.Recv(c.fd, b[:])
	if n > 0 || errno == 0 || !sockio.Retry(errno) {
		if e := c.ep; e != nil && e.stale == c {
			e.stale = nil
		}
		c.discard()
	}
}

// takeEvent handles an event on an open connection.
func (c *Conn) handleEvent(b []byte) error {
	event := binary.LittleEndian.Uint32(b)
	if c.toEP || (event == eventRequest) != (len(b) != eventLen) {
		return errInvalidEvent
	}
	switch event {
	case eventRequest:
		r, ok := parseRequest(b)
		if !ok || r.toEP || c.peerSends || c.gotFin || r.conn != c.sn || r.listen != c.peer {
			return errInvalidEvent
		}
		c.peerSends = true
		c.due |= dueAck
		if c.closing { // if this side has shut it down already, the acknowledgement fails and the peer connects anew
			c.closing = false
			c.makeUnnamed()
		}
	case eventAck, eventAckRequest:
		joins := event == eventAckRequest
		if !c.requested || joins && (c.peerSends || c.gotFin) {
			return errInvalidEvent
		}
		c.peerSends = c.peerSends || joins
		c.allowSend()
	case eventFin:
		if !c.peerSends {
			return errInvalidEvent
		}
		c.peerSends, c.gotFin = false, true
		switch {
		case c.ep != nil:
			c.it.onFin(c)
		case c.closing:
		case c.tx.empty():
			c.fail(ucs.ErrPeerClosed)
		default: // of an EP that was closed
			c.closeSoon()
		}
	default:
		return errInvalidEvent
	}
	c.markDirty()
	return nil
}

// leave ends the use of the connection by its EP, which is closed. early is what the EP has posted and the
// connection could not send yet.
func (c *Conn) removeEP(early []byte) {
	c.ep, c.early = nil, early
	if !c.toEP {
		c.it.closedEPs[peerID{c.peer, c.sn}] = c // discard ends it
	}
	switch {
	case c.state >= connBroken:
	case c.state != connOpen && len(early) == 0:
		c.discard()
	case c.peerSends && !c.toEP && !c.requested:
		c.sendFin()
		c.makeUnnamed()
	default:
		if c.state == connOpen && !c.requested { // else opened says it, behind early
			c.sendFin()
		}
		c.closeSoon()
	}
}

// closeSoon closes the connection when everything is written and the peer has closed it too.
func (c *Conn) closeSoon() {
	it := c.it
	c.closing = true
	c.deadline = time.Now().Add(it.cfg.Linger)
	if c.state != connOpen || c.requested {
		c.deadline = time.Now().Add(it.cfg.ConnTimeout)
	}
	_ = it.tickEvery(deadlineTick)
	c.markDirty()
}

// sayFin queues the last frame of an interface connection behind everything else.
func (c *Conn) sendFin() {
	if !c.toEP && !c.sentFin {
		c.sentFin = true
		c.due |= dueFin
		c.markDirty()
	}
}

// emit moves the control frames that are due to the transmit buffer, as far as they fit.
func (c *Conn) queueControl() {
	q := &c.tx
	q.growTo(0)
	if c.due&dueRequest != 0 {
		r := c.request()
		b := q.reserveControl(frameLen + r.bodyLen())
		if b == nil {
			return
		}
		putFrame(b, idCM, r.bodyLen())
		r.put(b[frameLen:])
		c.due &^= dueRequest
	}
	for _, k := range [...]struct {
		due  uint8
		id   uint8
		n    int
		word uint32
	}{
		{dueAck, idCM, eventLen, eventAck},
		{dueAckRequest, idCM, eventLen, eventAckRequest},
		{duePutAck, idPutAck, putAckLen, c.putNumber},
		{dueKeepAlive, idKeepAlive, 0, 0},
		{dueFin, idCM, eventLen, eventFin},
	} {
		if c.due&k.due == 0 {
			continue
		}
		b := q.reserveControl(frameLen + k.n)
		if b == nil {
			return
		}
		putFrame(b, k.id, k.n)
		if k.n > 0 {
			binary.LittleEndian.PutUint32(b[frameLen:], k.word)
		}
		c.due &^= k.due
	}
}

// connectTo starts to connect to a peer from the address of the device.
func (it *Iface) connectTo(peer netip.AddrPort) (fd int, err error) {
	fd, err = newSocket(peer.Addr(), &it.cfg)
	if err != nil {
		return -1, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	if err = os.NewSyscallError("setsockopt", err); err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, sockaddr(netip.AddrPortFrom(it.dev.ip, 0))))
	}
	if err == nil {
		if err = unix.Connect(fd, sockaddr(peer)); err == unix.EINPROGRESS || err == unix.EINTR {
			err = nil
		}
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
