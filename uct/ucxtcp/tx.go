package ucxtcp

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// txQueue has the bytes that a connection must write: a buffer of frames, and then the data of one zero-copy
// send. The header of that send is at the end of the buffer. Nothing is added until the data is written.
//
//	buf ....[head  frames  tail]....  controlRoom ]   zcopy [pieces]
type txQueue struct {
	buf        []byte
	head, tail int
	zcopy      *op // nil: none

	collecting bool          // the next small message is not written at once
	blocked    bool          // the socket's buffer is full
	watchesOut bool          // the kernel reports room in it
	sendErr    syscall.Errno // why the socket takes nothing any more; what it still has is read first
	streak     int           // writes for new messages since a message of the peer
	posts      uint          // messages posted
	seen       uint          // value of posts at the last Progress
	deferred   int           // calls of Progress that left joined messages for more to be posted
	refused    int           // times in a row that the socket took nothing
}

// growTo makes the buffer long enough for n bytes of messages, and control frames.
func (q *txQueue) growTo(n int) {
	if n += controlRoom; len(q.buf) < n {
		b := make([]byte, n)
		copy(b, q.buf[:q.tail])
		q.buf = b
	}
}

func (q *txQueue) empty() bool { return q.head == q.tail && q.zcopy == nil }

// take returns n bytes at the end of the buffer for a message, or nil. They
// become part of the queue when tail is moved over them.
func (q *txQueue) reserve(n int) []byte {
	if q.zcopy != nil || q.tail+n > len(q.buf)-controlRoom {
		return nil
	}
	return q.buf[q.tail : q.tail+n : q.tail+n]
}

// takeControl is take for a control frame, which may use all of the buffer and is part of the queue at once.
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

// compactWorth is the share of the buffer that must be free at its start before a
// message moves the queue, so that less is copied than sent.
const compactMin = 4

// room makes place for a message of n bytes, by writing and by moving the queue,
// and returns it; nil if there is none.
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

// posted adds n bytes that take returned, as one message, and writes if it is time to.
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

// Limits of joining: those of package tcp.
const (
	streamStreak   = 4  // so many writes without a message from the peer are a stream
	maxDeferred    = 32 // Progress calls for which a stream's messages may wait for more
	watchOutAfter  = 64 // refusals after which the kernel reports room in the socket
	retryLessAfter = 2  // refusals after which a full socket is tried less often,
	retryEvery     = 16 // at each such call of Progress: trying disturbs the kernel's work on it
)

// settle is what Progress does for a connection with something queued, or that
// has written something since the last Progress. It reports whether the
// connection needs it again.
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

// unblock notes that the socket may have room again.
func (c *Conn) unblock() {
	c.tx.refused, c.tx.watchesOut = 0, false
	c.setEvents()
	c.markDirty()
}

// flush writes until the queue is empty or the socket full.
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

// refusedWrite handles an error of a write.
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

// readRest reads what is left of a connection that the peer has cut: it may have said
// that it closes. It ends the connection.
func (c *Conn) readRest() {
	for c.state == connOpen && !c.held && c.receive() > 0 {
	}
	c.failIO("send", c.tx.sendErr)
}

// failIO breaks the connection after a system call has failed.
func (c *Conn) failIO(call string, errno syscall.Errno) {
	cause := ucs.ErrConnReset
	if errno == unix.ETIMEDOUT || errno == unix.EHOSTUNREACH {
		cause = ucs.ErrTimedOut
	}
	c.fail(fmt.Errorf("%w: %s: %w", cause, call, errno))
}

// writeSome makes one system call. whole is what it was to write.
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

// consume drops n bytes from the front of the queue.
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
