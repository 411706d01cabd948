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

// The connection manager decides which side may send messages on a connection.
//
// On an interface connection, a side may send after its connection request is acknowledged. The
// other side may join with an ACK that is also a request (eventAckRequest), or later with its own
// request on the same connection. If both sides dial at the same time, the connection of the side
// with the lower address remains: the other side closes its own connection and joins. A side that
// sends no more messages sends eventFin. The connection ends when neither side sends.
//
// On an endpoint connection, both sides may send after the request. It ends when one side closes
// it.

// Flags of the control frames that a connection has to write, in the order in which they are
// written.
const (
	dueRequest = 1 << iota
	dueAck
	dueAckRequest
	duePutAck
	dueKeepAlive
	dueFin
)

// controlRoom is the part of the transmit buffer that is reserved for control frames, one of each,
// in bytes.
const controlRoom = 128

// Reasons to refuse a connection in the handshake. The log shows them as the attribute last.
var (
	errNotUCX         = errors.New("the peer does not use this protocol")
	errNoRequest      = errors.New("the first frame is not a connection request")
	errRequestTimeout = errors.New("no connection request within HELLO_TIMEOUT")
	errSource         = errors.New("the peer claims to listen at another IP address than it connects from (ANY_SOURCE)")
	errNoKey          = errors.New("no endpoint of this side expects this key")
	errConnected      = errors.New("the endpoint has a connection already")
	errInvalidEvent   = errors.New("event that is not valid in the state of the connection")
)

// dial starts to connect. Progress reports failures.
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

// handleDial sends the connection request if the socket is connected.
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

// allowSend lets the EP send after the connection request was acknowledged. Without an EP it sends
// the early messages and FIN.
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

// sendEarly queues messages that were posted before the connection was open, after the control
// frames.
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

// attach makes c the connection of e, which names its peer.
func (c *Conn) attach(e *EP) {
	it := c.it
	c.ep, e.conn = e, c
	it.unnamed.remove(c.unnamed)
	c.unnamed = nil
	c.rx.growTo(int(it.cfg.RxBuf))
	c.tx.growTo(int(it.cfg.TxBuf))
}

// adopt makes c, which the peer has made before e existed, the connection of e, and requests to
// send on it.
func (c *Conn) adopt(e *EP) {
	c.attach(e)
	c.requested, c.adopted = true, true
	c.due |= dueRequest
	d := c.it.cfg.ConnTimeout
	e.setDeadline(time.Now().Add(max(d, e.within)))
	c.flush()
	c.markDirty()
}

// request returns the connection request of this side.
func (c *Conn) request() request {
	r := request{toEP: c.toEP, conn: c.sn, listen: c.it.listen}
	if c.toEP {
		r.conn = c.remote
	}
	return r
}

// handleRequest handles the first request on an accepted connection.
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

// handleEPRequest attaches an endpoint connection to the EP with the key.
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
			c.Hold() // Connect calls Resume
		}
		c.allowSend()
	}
}

// handleIfaceRequest attaches an interface connection to its EP, if there is one.
func (c *Conn) handleIfaceRequest() {
	it := c.it
	id := peerID{c.peer, c.sn}
	e := it.byPeer[id]
	if c.peer == it.listen {
		e = nil // a connection to the own iface
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
	case it.listen.Compare(c.peer) > 0: // both sides dial, and the connection of the peer remains
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

// join replies to the request of a peer with an acknowledgement that is also a request.
func (c *Conn) join(e *EP) {
	c.due |= dueAckRequest
	c.attach(e)
	c.completeAccept()
	c.allowSend()
}

// completeAccept completes the handshake of an accepted connection.
func (c *Conn) completeAccept() {
	c.state, c.handshaken, c.peerSends = connOpen, true, true
	c.it.makeHot(c)
	c.markDirty()
}

// readStale closes a stale connection after the peer has closed it or has sent something.
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

// handleEvent handles an event on an open connection.
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
		if c.closing { // if this side has half-closed it already, the ACK fails and the peer connects again
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
		default: // the EP was closed
			c.closeSoon()
		}
	default:
		return errInvalidEvent
	}
	c.markDirty()
	return nil
}

// removeEP removes the EP, which is closed, from the connection. early contains the posted messages
// that the connection could not send yet.
func (c *Conn) removeEP(early []byte) {
	c.ep, c.early = nil, early
	if !c.toEP {
		c.it.closedEPs[peerID{c.peer, c.sn}] = c // discard removes it
	}
	switch {
	case c.state >= connBroken:
	case c.state != connOpen && len(early) == 0:
		c.discard()
	case c.peerSends && !c.toEP && !c.requested:
		c.sendFin()
		c.makeUnnamed()
	default:
		if c.state == connOpen && !c.requested { // otherwise allowSend sends it after the early messages
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

// sendFin queues FIN, the last frame of an interface connection.
func (c *Conn) sendFin() {
	if !c.toEP && !c.sentFin {
		c.sentFin = true
		c.due |= dueFin
		c.markDirty()
	}
}

// queueControl moves the due control frames to the transmit buffer, as far as they fit.
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
	fd, err = sockio.NewSocket(peer.Addr(), it.cfg.options())
	if err != nil {
		return -1, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	if err = os.NewSyscallError("setsockopt", err); err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, sockio.Sockaddr(netip.AddrPortFrom(it.dev.ip, 0))))
	}
	if err == nil {
		if err = unix.Connect(fd, sockio.Sockaddr(peer)); err == unix.EINPROGRESS || err == unix.EINTR {
			err = nil
		}
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
