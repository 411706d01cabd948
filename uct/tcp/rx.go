package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// rxState is the receiver of a connection: a buffer of frames, and a sink, which receives the data
// of a large frame without a copy in the buffer.
type rxState struct {
	buf        []byte
	head, tail int
	sink       sink
}

// sink is the destination of the remaining data of one frame.
type sink struct {
	left int
	op   *op     // get: its pieces are the destination
	mem  *memory // put: destination, from off
	off  int
	// If op and mem are nil, the data is discarded.

	put    bool // a put, to which replyPut replies when all data has arrived
	status ucs.Status
	ack    bool
	tag    uint32
}

var (
	errNoBye           = fmt.Errorf("%w: the peer closed the connection without BYE", ucs.ErrConnReset)
	errMalformed       = errors.New("malformed frame")
	errUnexpectedReply = errors.New("reply that matches no request")
	errAfterBye        = errors.New("frame after BYE")
	errFlooded         = errors.New("too many outstanding requests")
)

// receive makes one read and handles its frames. It returns the number of frames, but at least 1 if
// bytes were read.
func (c *conn) receive() int {
	if c.state != connOpen {
		return 0
	}
	r := &c.rx
	n, errno := c.readSome()
	switch {
	case errno != 0:
		if !sockio.Retry(errno) {
			c.failIO("receive", errno)
		}
		c.emptyReads++
		return 0
	case n == 0:
		c.fail(errNoBye)
		return 0
	}
	if c.gotBye {
		c.malformed(errAfterBye)
		return 0
	}
	c.emptyReads = 0
	c.tx.streak = 0
	if r.sink.left > 0 {
		n = c.fillSink(n)
	}
	r.tail += n
	k := c.parse()
	if !c.tx.empty() {
		c.markDirty()
	}
	return max(k, 1)
}

// afterSink is the maximum number of bytes after the data of a large frame that are read into the
// buffer: the next header and small frames. Further bytes could be data of the next large frame,
// which would then be copied.
const afterSink = 4 << 10

// readSome makes one system call. It reads to the sink, and what follows to the buffer, which is
// empty then.
func (c *conn) readSome() (int, syscall.Errno) {
	r, it := &c.rx, c.it
	if r.sink.left == 0 {
		return it.io.Recv(c.fd, r.buf[r.tail:])
	}
	v := vector{iov: it.iov[:]}
	s := &r.sink
	if s.mem != nil && !s.mem.enter() {
		s.mem, s.status = nil, ucs.StatusRemoteAccess
	}
	switch {
	case s.mem != nil:
		v.add(s.mem.buf[s.off : s.off+s.left])
	case s.op != nil:
		for i := s.op.cur; i < s.op.count; i++ {
			v.add(s.op.pieces[i])
		}
	default:
		return it.io.Recv(c.fd, r.buf[:min(s.left, len(r.buf))])
	}
	v.add(r.buf[:min(afterSink, len(r.buf))])
	n, errno := it.io.Recvv(c.fd, it.iov[:v.n])
	clear(it.iov[:v.n])
	if s.mem != nil {
		s.mem.exit()
	}
	return n, errno
}

// fillSink accounts for n bytes that were read. It returns the number of those that are in the
// buffer.
func (c *conn) fillSink(n int) int {
	s := &c.rx.sink
	k := min(n, s.left)
	if s.op != nil {
		s.op.advance(k)
	}
	s.off += k
	s.left -= k
	if s.left == 0 {
		c.endSink()
	}
	return n - k
}

// endSink handles the end of the data of a frame.
func (c *conn) endSink() {
	s := c.rx.sink
	c.rx.sink = sink{}
	if s.put {
		c.replyPut(s.status, s.ack, s.tag)
	}
}

// moveData copies the data at r.head to s, as far as it is in the buffer. The sink receives the
// rest.
func (c *conn) moveData(s sink) {
	r := &c.rx
	data := r.buf[r.head:min(r.tail, r.head+s.left)]
	r.head += len(data)
	if s.mem != nil {
		if s.mem.enter() {
			copy(s.mem.buf[s.off:], data)
			s.mem.exit()
		} else {
			s.mem, s.status = nil, ucs.StatusRemoteAccess
		}
	}
	if s.op != nil {
		s.op.copyIn(data)
	}
	s.off += len(data)
	s.left -= len(data)
	r.sink = s
	if s.left == 0 {
		c.endSink()
	}
}

// parse handles the frames in the buffer and returns their number.
func (c *conn) parse() (n int) {
	r := &c.rx
	need := 0
	for c.state == connOpen && r.sink.left == 0 {
		avail := r.tail - r.head
		if avail < frameLen {
			need = frameLen
			break
		}
		h, ok := parseHeader(r.buf[r.head:], c.it.maxAM)
		if !ok {
			c.malformed(errMalformed)
			return n
		}
		if need = c.neededBytes(&h); avail < need {
			break
		}
		n++
		if h.kind == frameAM {
			data := r.buf[r.head+frameLen : r.head+need : r.head+need]
			r.head += need
			c.executed++
			c.it.am.Handle(h.id, data, nil)
			continue
		}
		if err := c.handle(&h); err != nil {
			c.malformed(err)
			return n
		}
	}
	c.compactRx(need)
	return n
}

// compactRx makes room in the buffer for a frame of need bytes that starts at head.
func (c *conn) compactRx(need int) {
	r := &c.rx
	switch {
	case r.head == r.tail:
		r.head, r.tail = 0, 0
	case r.head+need > len(r.buf) || len(r.buf)-r.tail < len(r.buf)/4:
		r.tail = copy(r.buf, r.buf[r.head:r.tail])
		r.head = 0
		c.growForFrame(need)
	}
}

// neededBytes returns the number of bytes of a frame that must be in the buffer before it is handled:
// the whole frame, but without data for which a sink can be used. It does not exceed the length of
// the buffer.
func (c *conn) neededBytes(h *header) int {
	switch h.kind {
	case framePut:
		return frameLen + targetLen
	case frameData:
		return frameLen
	}
	return frameLen + h.n
}

// malformed fails the connection because the peer sent an invalid frame.
func (c *conn) malformed(err error) {
	c.it.limits.malformed.Inc()
	c.gotBye = false
	if c.closing == closeProposed {
		c.closing = closeNone // the EPs fail too
	}
	c.fail(fmt.Errorf("%w: %w", ucs.ErrConnReset, err))
}

// handle handles a frame that is not an active message.
func (c *conn) handle(h *header) error {
	r := &c.rx
	body := r.buf[r.head+frameLen : r.tail]
	switch h.kind {
	case framePut:
		r.head += frameLen + targetLen
		c.executed++
		c.servePut(h, parseTarget(body))
		return nil
	case frameData:
		return c.handleData(h)
	}
	r.head += frameLen + h.n
	switch h.kind {
	case frameGet:
		c.executed++
		return c.serveGet(parseTarget(body), binary.LittleEndian.Uint64(body[offGetLen:]))
	case frameAtomic:
		c.executed++
		return c.serveAtomic(uct.AtomicOp(h.id), body)
	case frameFlush:
		return c.serveFlush(binary.LittleEndian.Uint64(body))
	case frameDone:
		return c.handleDone(h, body)
	case frameBye:
		return c.handleBye()
	case frameUnused:
		return c.handleUnused()
	case frameUsed:
		return c.handleUsed()
	}
	return c.handleNak(h, body)
}

// handleBye handles BYE, which must be the last frame.
func (c *conn) handleBye() error {
	if c.gotBye || c.rx.head < c.rx.tail {
		return errAfterBye
	}
	c.gotBye = true
	return nil
}

// handleData receives the data of a get, which must be the next expected reply.
func (c *conn) handleData(h *header) error {
	o := c.awaitingReply.first
	if o == nil || o.kind != opGet || o.got || h.n != o.size || h.id != 0 {
		return errUnexpectedReply
	}
	o.got = true
	c.rx.head += frameLen
	c.moveData(sink{left: h.n, op: o})
	return nil
}

// handleDone completes the operation of the next expected reply.
func (c *conn) handleDone(h *header, body []byte) error {
	o := c.awaitingReply.first
	st := ucs.Status(h.id)
	if o == nil || st == ucs.StatusInProgress || st.Err() == ucs.ErrInternal || h.id > 127 {
		return errUnexpectedReply
	}
	if err := o.checkDone(h, body, c); err != nil {
		return err
	}
	c.awaitingReply.pop()
	c.acked = o.seq
	if st != ucs.StatusOK && o.ep != nil {
		o.ep.remoteError(st)
	}
	if st == ucs.StatusOK && o.kind == opAtomic && o.result != nil {
		*o.result = binary.LittleEndian.Uint64(body)
	}
	c.it.complete(o, st)
	if c.closesWhenDrained {
		c.startCloseTimerIfDrained()
	}
	return nil
}

// checkDone checks that a DONE is valid for o.
func (o *op) checkDone(h *header, body []byte, c *conn) error {
	value, good := h.n == wordLen, h.id == uint8(ucs.StatusOK)
	switch o.kind {
	case opPut:
		if value || o.left > 0 {
			return errUnexpectedReply
		}
	case opGet:
		if value || good && !o.got {
			return errUnexpectedReply
		}
	case opAtomic:
		if value != good || value && o.size == 4 && binary.LittleEndian.Uint64(body)>>32 != 0 {
			return errUnexpectedReply
		}
	case opFlush:
		if !value || !good || binary.LittleEndian.Uint64(body) != o.seq {
			return errUnexpectedReply
		}
	}
	return nil
}

// handleNak fails the EP whose request the peer has refused.
func (c *conn) handleNak(h *header, body []byte) error {
	if st := ucs.Status(h.id); st != ucs.StatusRemoteAccess {
		return errMalformed
	}
	if e := c.it.tags.Find(uint64(binary.LittleEndian.Uint32(body))); e != nil && e.conn == c {
		e.remoteError(ucs.StatusRemoteAccess)
	}
	return nil
}
