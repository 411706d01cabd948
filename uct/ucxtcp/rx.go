package ucxtcp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// rxState has the bytes that a connection has read and not handled yet.
type rxState struct {
	buf        []byte
	head, tail int
}

var (
	errNoFin     = fmt.Errorf("%w: the connection ended without CONN_FIN", ucs.ErrConnReset)
	errMalformed = errors.New("malformed frame")
	errPut       = errors.New("put with data: UCX's puts name addresses without a key, and are refused")
	errNotSender = errors.New("message on a connection that the peer has not asked to send on")
)

func (r *rxState) growTo(n int) {
	if len(r.buf) < n {
		b := make([]byte, n)
		copy(b, r.buf[:r.tail])
		r.buf = b
	}
}

// receive reads what there is, once, and handles it. It returns the number of frames, at least 1 if something
// was read.
func (c *Conn) receive() int {
	if c.held || c.state == connDialing || c.state == connStale || c.state >= connBroken {
		return 0
	}
	r := &c.rx
	n, errno := c.it.io.Recv(c.fd, r.buf[r.tail:])
	switch {
	case errno != 0:
		if !sockio.Retry(errno) {
			c.failIO("receive", errno)
		}
		c.emptyReads++
		return 0
	case n == 0:
		c.peerClosed()
		return 0
	}
	c.emptyReads = 0
	c.tx.streak = 0
	r.tail += n
	return max(c.parse(), 1)
}

// ended is called when the peer has closed the connection.
func (c *Conn) peerClosed() {
	switch {
	case c.state != connOpen || c.closing:
		handshaken := c.handshaken
		if c.discard(); handshaken {
			c.it.onLeave(c, ucs.ErrPeerClosed)
		}
	default:
		c.fail(errNoFin)
	}
}

// parse handles the frames in the buffer and returns their number.
func (c *Conn) parse() (n int) {
	r := &c.rx
	need := frameLen
	for !c.held && c.state < connBroken && c.state != connStale {
		avail := r.tail - r.head
		if c.state == connMagic {
			if need = magicLen; !c.handleMagic(avail) {
				break
			}
			continue
		}
		if need = frameLen; avail < need {
			break
		}
		id, size, ok := parseFrame(r.buf[r.head:], c.it.maxAM)
		if !ok || c.state == connRequest && (id != idCM || size == eventLen) {
			c.wrongFrame(ok)
			return n
		}
		if need += size; avail < need {
			break
		}
		body := r.buf[r.head+frameLen : r.head+need : r.head+need]
		r.head += need
		c.frames++
		n++
		if err := c.handle(id, body); err != nil {
			c.malformed(err)
			return n
		}
	}
	if c.state < connBroken {
		c.compactRx(need)
	}
	return n
}

// takeMagic handles the first bytes of an accepted connection, and reports whether they were all there and
// right.
func (c *Conn) handleMagic(avail int) bool {
	r := &c.rx
	var want [magicLen]byte
	binary.LittleEndian.PutUint64(want[:], magic)
	have := r.buf[r.head : r.head+min(avail, magicLen)]
	if string(have) != string(want[:len(have)]) {
		c.refuse(errNotUCX)
		return false
	}
	if len(have) < magicLen {
		return false
	}
	r.head += magicLen
	c.state = connRequest
	return true
}

// wrongFrame ends a connection whose next frame is not valid. If ok is true, it is valid but not the connection request
// that must come first.
func (c *Conn) wrongFrame(ok bool) {
	switch {
	case c.state == connRequest && ok:
		c.refuse(errNoRequest)
	case c.state == connRequest:
		c.refuse(errNotUCX)
	default:
		c.malformed(errMalformed)
	}
}

// handle handles one frame.
func (c *Conn) handle(id uint8, body []byte) error {
	if id < idCM {
		if !c.peerSends {
			return errNotSender
		}
		it := c.it
		it.source = c
		it.am.Handle(id, body, nil)
		it.source = nil
		return nil
	}
	switch id {
	case idCM:
		if c.state == connRequest {
			c.handleRequest(body)
			return nil
		}
		return c.handleEvent(body)
	case idPut:
		return c.handlePut(body)
	case idPutAck:
		return c.handlePutAck(body)
	}
	return nil // a keepalive
}

// makeRoom makes room in the buffer for a frame that needs so many bytes from head.
func (c *Conn) compactRx(need int) {
	r := &c.rx
	switch {
	case r.head == r.tail:
		r.head, r.tail = 0, 0
		c.growForFrame(need)
	case r.head+need > len(r.buf) || len(r.buf)-r.tail < len(r.buf)/4:
		r.tail = copy(r.buf, r.buf[r.head:r.tail])
		r.head = 0
		c.growForFrame(need)
	}
}
