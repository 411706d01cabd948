package ucxtcp

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// txQueue is the transmit queue of a connection: a buffer of frames, and then the data of one zcopy
// send, whose header is at the end of the buffer. Nothing is queued after it until the data is
// written.
//
//	buf ....[head  frames  tail]....  controlRoom ]   zcopy [pieces]
type txQueue struct {
	buf        []byte
	head, tail int
	zcopy      *op // nil if there is none

	collecting bool          // the next small message is queued, not written at once
	blocked    bool          // the send buffer of the socket is full
	watchesOut bool          // epoll reports EPOLLOUT
	sendErr    syscall.Errno // error of a write after the peer has closed; received bytes are read before the connection fails
	streak     int           // writes of new messages since the last message of the peer
	posts      uint          // number of messages posted
	seen       uint          // value of posts at the last Progress
	deferred   int           // consecutive calls of Progress that wrote nothing, to collect more messages
	refused    int           // consecutive writes that the socket refused
}

// growTo makes the buffer large enough for n bytes of messages, and for control frames.
func (q *txQueue) growTo(n int) {
	if n += controlRoom; len(q.buf) < n {
		b := make([]byte, n)
		copy(b, q.buf[:q.tail])
		q.buf = b
	}
}

func (q *txQueue) empty() bool { return q.head == q.tail && q.zcopy == nil }

// reserve returns n bytes at the end of the buffer for a message, or nil. The caller queues them by
// advancing tail.
func (q *txQueue) reserve(n int) []byte {
	if q.zcopy != nil || q.tail+n > len(q.buf)-controlRoom {
		return nil
	}
	return q.buf[q.tail : q.tail+n : q.tail+n]
}

// reserveControl returns n queued bytes for a control frame, which may use the whole buffer.
func (q *txQueue) reserveControl(n int) []byte {
	if q.tail+n > len(q.buf) {
		if q.compact(); q.tail+n > len(q.buf) {
			return nil
		}
	}
	b := q.buf[q.tail : q.tail+n : q.tail+n]
	q.tail += n
	return b
}

// compact moves the queue to the start of the buffer.
func (q *txQueue) compact() {
	if q.head > 0 {
		copy(q.buf, q.buf[q.head:q.tail])
		q.tail -= q.head
		q.head = 0
	}
}

// compactMin is the inverse of the fraction of the buffer that must be free at its start before a
// message compacts the queue. It limits the copies to a fraction of the traffic.
const compactMin = 4

// makeTxRoom reserves n bytes for a message after it has written and compacted the queue; nil if
// there is no room.
func (c *Conn) makeTxRoom(n int) []byte {
	q := &c.tx
	if !q.blocked {
		c.flush()
		if c.state != connOpen {
			return nil
		}
		if b := q.reserve(n); b != nil {
			return b
		}
	}
	if q.head >= len(q.buf)/compactMin {
		q.compact()
	}
	return q.reserve(n)
}

// commit queues n reserved bytes as one message. It writes unless the queue may wait for more.
func (c *Conn) commit(n int) {
	q := &c.tx
	q.tail += n
	q.posts++
	if q.collecting && q.tail-q.head < int(c.it.cfg.Join) || q.blocked {
		c.markDirty()
		return
	}
	q.streak++
	c.flush()
	q.collecting = true
	c.markDirty()
}

// Limits of collecting: those of package tcp.
const (
	streamStreak   = 4  // so many writes without a message from the peer are a stream
	maxDeferred    = 32 // calls of Progress for which the messages of a stream may wait for more
	watchOutAfter  = 64 // refused writes after which epoll watches for EPOLLOUT
	retryLessAfter = 2  // refused writes after which a full socket is tried less often,
	retryEvery     = 16 // once in so many calls of Progress: a try disturbs the kernel's work on the socket
)

// progressTx is called by Progress if the connection has queued or written something since the last
// call. It writes the queue unless the queue may wait for more, and reports whether to call it
// again.
func (c *Conn) progressTx() bool {
	q := &c.tx
	if c.state != connOpen {
		return false
	}
	c.trackAcks()
	if q.sendErr != 0 {
		c.readRest()
		return false
	}
	more := q.posts != q.seen
	q.seen = q.posts
	if more && c.due == 0 && q.streak >= streamStreak && q.tail-q.head < int(c.it.cfg.Join) && q.deferred < maxDeferred {
		q.deferred++
		q.collecting = true
		return true
	}
	q.deferred = 0
	if q.blocked && q.refused >= retryLessAfter && c.it.tick%retryEvery != 0 {
		return true
	}
	if !q.empty() || c.due != 0 {
		if more {
			q.streak++
		}
		c.flush()
		if q.blocked && q.refused > watchOutAfter && c.state == connOpen {
			q.watchesOut = true
			c.setEvents()
			return false
		}
		return true
	}
	if c.closing && !c.requested {
		_ = unix.Shutdown(c.fd, unix.SHUT_WR)
		return false
	}
	if !more {
		q.streak = 0
	}
	q.collecting = more && q.streak >= streamStreak
	return more
}

// unblock handles EPOLLOUT.
func (c *Conn) unblock() {
	c.tx.refused, c.tx.watchesOut = 0, false
	c.setEvents()
	c.markDirty()
}

// flush writes until the queue is empty or the send buffer is full.
func (c *Conn) flush() {
	q := &c.tx
	for c.state == connOpen {
		if c.due != 0 && q.zcopy == nil {
			c.queueControl()
		}
		if q.empty() {
			return
		}
		n, errno, whole := c.writeSome()
		if errno != 0 {
			c.handleWriteError(errno)
			return
		}
		q.blocked, q.refused = false, 0
		c.consume(n)
		if n < whole {
			q.blocked = true
			return
		}
	}
}

// handleWriteError handles an error of a write.
func (c *Conn) handleWriteError(errno syscall.Errno) {
	q := &c.tx
	switch {
	case sockio.Retry(errno):
		q.blocked = true
		q.refused++
	case errno == unix.EPIPE || errno == unix.ECONNRESET:
		q.blocked, q.sendErr = true, errno
		c.markDirty()
	default:
		c.failIO("send", errno)
	}
}

// readRest reads the remaining bytes of a connection that the peer has closed, which may include
// FIN, and fails the connection.
func (c *Conn) readRest() {
	for c.state == connOpen && !c.held && c.receive() > 0 {
	}
	c.failIO("send", c.tx.sendErr)
}

// failIO fails the connection because of a failed system call.
func (c *Conn) failIO(call string, errno syscall.Errno) {
	cause := ucs.ErrConnReset
	if errno == unix.ETIMEDOUT || errno == unix.EHOSTUNREACH {
		cause = ucs.ErrTimedOut
	}
	c.fail(fmt.Errorf("%w: %s: %w", cause, call, errno))
}

// writeSome makes one system call. whole is the number of bytes passed to it.
func (c *Conn) writeSome() (n int, errno syscall.Errno, whole int) {
	q, it := &c.tx, c.it
	b := q.buf[q.head:q.tail]
	o := q.zcopy
	if o == nil {
		n, errno = it.io.Send(c.fd, b)
		return n, errno, len(b)
	}
	k := 0
	if len(b) > 0 {
		sockio.SetIovec(&it.iov[0], b)
		k = 1
	}
	for i := o.cur; i < o.count; i++ {
		sockio.SetIovec(&it.iov[k], o.pieces[i])
		k++
	}
	n, errno = it.io.Sendv(c.fd, it.iov[:k])
	clear(it.iov[:k])
	return n, errno, len(b) + o.left
}

// consume removes n written bytes from the front of the queue.
func (c *Conn) consume(n int) {
	q := &c.tx
	k := min(n, q.tail-q.head)
	q.head += k
	if q.head == q.tail {
		q.head, q.tail = 0, 0
	}
	c.it.freed = true
	o := q.zcopy
	if n -= k; o == nil || q.tail > 0 {
		return
	}
	o.advance(n)
	if o.left > 0 {
		return
	}
	q.zcopy = nil
	if o.comp == nil {
		c.it.ops.put(o)
	} else {
		c.it.written.push(o)
	}
}
