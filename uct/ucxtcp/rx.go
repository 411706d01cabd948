package ucxtcp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// rxState contains the bytes that were read and are not handled yet.
type rxState struct {
	buf        []byte
	head, tail int
}

var (
	errNoFin     = fmt.Errorf("%w: the peer closed the connection without CONN_FIN", ucs.ErrConnReset)
	errMalformed = errors.New("malformed frame")
	errPut       = errors.New("put with data, which has no remote key")
	errNotSender = errors.New("message without a connection request")
)

func (r *rxState) growTo(n int) {
	if len(r.buf) < n {
		b := make([]byte, n)
		copy(b, r.buf[:r.tail])
		r.buf = b
	}
}

// receive makes one read and handles its frames. It returns the number of frames, but at least 1 if
// bytes were read.
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

// peerClosed handles the end of the stream.
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

// handleMagic checks the first bytes of an accepted connection, and reports whether the magic
// number is complete and right.
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

// wrongFrame closes a connection because of its next frame, which is invalid or, if ok is true, not
// the connection request that must be the first frame.
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
	return nil // keepalive
}

// compactRx makes room in the buffer for a frame of need bytes that starts at head.
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
