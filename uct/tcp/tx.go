package tcp

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// txQueue is the transmit queue of a connection: a buffer of frames, and extents, which are data
// outside the buffer that is written between two bytes of the buffer.
//
//	buf    ....[head  frames  frames  frames  tail]....   replyRoom ]
//	                        ^ at           ^ at
//	extents             [pieces]        [memory]
type txQueue struct {
	buf        []byte
	head, tail int
	base       uint64 // stream position of buf[0], not counting extents

	ext          []extent // ring of a power of two
	first, after uint     // free-running indexes of ext
	outside      int      // unwritten bytes of the extents

	collecting bool          // the next small message is queued, not written at once
	blocked    bool          // the send buffer of the socket is full
	sendErr    syscall.Errno // error of a write after the peer has closed; received bytes are read before the connection fails
	streak     int           // writes of new messages since the last message of the peer
	posts      uint          // number of frames queued
	seen       uint          // value of posts at the last Progress
	deferred   int           // consecutive calls of Progress that wrote nothing, to collect more messages
	refused    int           // consecutive writes that the socket refused
}

// extent is data that is written before stream position at.
type extent struct {
	at  uint64
	op  *op     // data: the remaining pieces of op,
	mem *memory // or n bytes of mem from off, the data of a get,
	off int
	n   int // or n zeros if mem was closed in the meantime
}

func (x *extent) left() int {
	if x.op != nil {
		return x.op.left
	}
	return x.n
}

// Limits of the extents of one connection: each reply may have one, and so many sends.
const (
	maxSendExtents = 128
	extentRing     = maxSendExtents + maxReplies
)

// grow makes the buffers with the first request or reply, so that a connection that only receives
// needs none, or only room for replies.
func (q *txQueue) grow(it *iface) {
	if len(q.buf) <= replyRoom {
		q.growTo(int(it.cfg.TxBuf))
	}
}

// growTo makes a buffer for n bytes of requests and inline replies, and for all other replies.
func (q *txQueue) growTo(n int) {
	if n += replyRoom; len(q.buf) >= n {
		return
	}
	b := make([]byte, n)
	copy(b, q.buf[:q.tail])
	q.buf = b
	if q.ext == nil {
		q.ext = make([]extent, extentRing)
	}
}

func (q *txQueue) empty() bool { return q.head == q.tail && q.first == q.after }

// queued returns the number of bytes in the buffer.
func (q *txQueue) queued() int { return q.tail - q.head }

// mayCollect reports whether the queue may wait for further messages: fewer than JOIN bytes of
// frames, and fewer than JOINV bytes with the extents.
func (q *txQueue) mayCollect(cfg *Config) bool {
	return q.queued() < int(cfg.Join) && q.queued()+q.outside < int(cfg.JoinV)
}

// reserve returns n bytes at the end of the buffer for a request, or nil. The caller queues them by
// advancing tail.
func (q *txQueue) reserve(n int) []byte {
	if q.tail+n > len(q.buf)-replyRoom {
		return nil
	}
	return q.buf[q.tail : q.tail+n : q.tail+n]
}

// reserveReply returns n queued bytes for a reply, which may use the whole buffer.
func (c *conn) reserveReply(n int) []byte {
	q := &c.tx
	if q.tail+n > len(q.buf) {
		if q.buf == nil {
			c.growTx()
		}
		q.compact()
		if q.tail+n > len(q.buf) {
			return nil
		}
	}
	b := q.buf[q.tail : q.tail+n : q.tail+n]
	q.tail += n
	q.posts++
	return b
}

// compact moves the queue to the start of the buffer.
func (q *txQueue) compact() {
	if q.head == 0 {
		return
	}
	copy(q.buf, q.buf[q.head:q.tail])
	q.base += uint64(q.head)
	q.tail -= q.head
	q.head = 0
}

// compactMin is the inverse of the fraction of the buffer that must be free at its start before a
// request compacts the queue. It limits the copies to a fraction of the traffic.
const compactMin = 4

// hasExtentRoom reports whether a send may add an extent.
func (q *txQueue) hasExtentRoom() bool { return q.after-q.first < maxSendExtents }

// addExtent appends x to the queue; false if there is no room.
func (q *txQueue) addExtent(x extent) bool {
	if q.after-q.first == extentRing {
		return false
	}
	x.at = q.base + uint64(q.tail)
	q.ext[q.after%extentRing] = x
	q.after++
	q.outside += x.left()
	return true
}

// popUnsent removes extents up to the first one with an operation and returns the operation; nil if
// there is none.
func (q *txQueue) popUnsent() *op {
	for q.first != q.after {
		x := &q.ext[q.first%extentRing]
		o := x.op
		q.outside -= x.left()
		*x = extent{}
		q.first++
		if o != nil {
			return o
		}
	}
	return nil
}

// makeRoom reserves n bytes for a request after it has written and compacted the queue; nil if
// there is no room. A connection with postWhenOpen has no buffer before it is open, so reserve
// returns nil too.
func (c *conn) makeRoom(n int) []byte {
	q := &c.tx
	if c.postWhenOpen && c.state != connOpen {
		return nil
	}
	q.grow(c.it)
	if c.state == connOpen && !q.blocked {
		c.flush()
		if b := q.reserve(n); b != nil {
			return b
		}
	}
	if q.head >= len(q.buf)/compactMin {
		q.compact()
	}
	return q.reserve(n)
}

// commit queues n reserved bytes as one frame. It writes unless the queue may wait for more.
func (c *conn) commit(n int) {
	q := &c.tx
	q.tail += n
	q.posts++
	if q.collecting && q.mayCollect(&c.it.cfg) || q.blocked || c.state != connOpen {
		c.markDirty()
		return
	}
	q.streak++
	c.flush()
	q.collecting = true
	c.markDirty()
}

// Limits of collecting.
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
func (c *conn) progressTx() bool {
	q := &c.tx
	if c.state != connOpen {
		return false // open calls markDirty
	}
	c.trackAcks()
	if q.sendErr != 0 {
		c.readRest()
		return false
	}
	more := q.posts != q.seen
	q.seen = q.posts
	if more && q.streak >= streamStreak && q.mayCollect(&c.it.cfg) && q.deferred < maxDeferred {
		q.deferred++
		q.collecting = true
		return true
	}
	q.deferred = 0
	if q.blocked && q.refused >= retryLessAfter && c.it.tick%retryEvery != 0 {
		return true
	}
	if !q.empty() {
		if more {
			q.streak++
		}
		c.flush()
		if q.blocked && q.refused > watchOutAfter && c.state == connOpen {
			c.watchOut(true)
			return false
		}
		return true
	}
	if !more {
		q.streak = 0
	}
	q.collecting = more && q.streak >= streamStreak
	if c.closesWhenDrained {
		c.startCloseTimerIfDrained()
	}
	return more
}

// watchOut enables or disables EPOLLOUT, which reports room in the send buffer of the socket.
func (c *conn) watchOut(on bool) {
	if c.watchesOut == on {
		return
	}
	c.watchesOut = on
	events := uint32(unix.EPOLLIN)
	if on {
		events |= unix.EPOLLOUT
	}
	c.it.poll.Change(c.slot, events)
}

// unblock handles EPOLLOUT.
func (c *conn) unblock() {
	c.tx.refused = 0
	c.watchOut(false)
	c.markDirty()
}

// flush writes until the queue is empty or the send buffer is full.
func (c *conn) flush() {
	q := &c.tx
	for c.state == connOpen && !q.empty() {
		n, errno, whole := c.writeSome()
		if !c.handleWrite(n, errno) {
			return
		}
		c.consume(n)
		if n < whole {
			q.blocked = true
			return
		}
	}
}

// handleWrite handles the result of a write and reports whether it succeeded.
func (c *conn) handleWrite(n int, errno syscall.Errno) bool {
	q := &c.tx
	if errno == 0 {
		q.blocked, q.refused = false, 0
		return true
	}
	if sockio.Retry(errno) {
		q.blocked = true
		q.refused++
		return false
	}
	if errno == unix.EPIPE || errno == unix.ECONNRESET {
		q.blocked, q.sendErr = true, errno
		c.markDirty()
		return false
	}
	c.failIO("send", errno)
	return false
}

// readRest reads the remaining bytes of a connection that the peer has closed, which may include
// BYE, and fails the connection.
func (c *conn) readRest() {
	for c.state == connOpen && c.receive() > 0 {
	}
	if c.state == connOpen {
		c.failIO("send", c.tx.sendErr)
	}
}

// failIO fails the connection because of a failed system call.
func (c *conn) failIO(call string, errno syscall.Errno) {
	cause := ucs.ErrConnReset
	if errno == unix.ETIMEDOUT || errno == unix.EHOSTUNREACH {
		cause = ucs.ErrTimedOut
	}
	c.fail(fmt.Errorf("%w: %s: %w", cause, call, errno))
}

// writeSome makes one system call for as much as fits. whole is the number of bytes passed to it.
func (c *conn) writeSome() (n int, errno syscall.Errno, whole int) {
	q, it := &c.tx, c.it
	if q.first == q.after {
		b := q.buf[q.head:q.tail]
		n, errno = it.io.Send(c.fd, b)
		return n, errno, len(b)
	}
	v := vector{iov: it.iov[:]}
	pos, accessed := q.head, it.accessed[:0]
	for i := q.first; i != q.after && !v.full(); i++ {
		x := &q.ext[i%extentRing]
		at := int(x.at - q.base)
		v.add(q.buf[pos:at])
		pos = at
		if x.mem != nil && !x.mem.enter() {
			c.zeroFill(x)
		}
		if x.mem != nil {
			accessed = append(accessed, x.mem)
		}
		v.addExtent(x)
		if i+1 == q.after {
			v.add(q.buf[pos:q.tail])
		}
	}
	n, errno = it.io.Sendv(c.fd, it.iov[:v.n])
	for i, m := range accessed {
		m.exit()
		accessed[i] = nil
	}
	clear(it.iov[:v.n])
	return n, errno, v.bytes
}

// zeroFill replaces memory that was closed during the get of a peer. The length was sent already,
// so zeros follow, and the status of the DONE after them becomes StatusRemoteAccess.
func (c *conn) zeroFill(x *extent) {
	x.mem = nil
	c.tx.buf[int(x.at-c.tx.base)+offID] = uint8(ucs.StatusRemoteAccess)
}

var zeros [64 << 10]byte

// vector collects iovecs. After the first piece that does not fit, it adds no more.
type vector struct {
	iov        []unix.Iovec
	n          int
	bytes      int
	overflowed bool
}

func (v *vector) full() bool { return v.overflowed || v.n == len(v.iov) }

func (v *vector) add(b []byte) {
	if len(b) == 0 {
		return
	}
	if v.full() {
		v.overflowed = true
		return
	}
	sockio.SetIovec(&v.iov[v.n], b)
	v.n++
	v.bytes += len(b)
}

func (v *vector) addExtent(x *extent) {
	switch {
	case x.op != nil:
		for i := x.op.cur; i < x.op.count; i++ {
			v.add(x.op.pieces[i])
		}
	case x.mem != nil:
		v.add(x.mem.buf[x.off : x.off+x.n])
	default:
		v.add(zeros[:min(x.n, len(zeros))])
		v.overflowed = v.overflowed || x.n > len(zeros)
	}
}

// consume removes n written bytes from the front of the queue.
func (c *conn) consume(n int) {
	q := &c.tx
	for n > 0 {
		if q.first == q.after {
			q.head += n
			break
		}
		x := &q.ext[q.first%extentRing]
		if k := int(x.at-q.base) - q.head; k > 0 {
			k = min(k, n)
			q.head += k
			n -= k
			continue
		}
		k := min(n, x.left())
		n -= k
		if c.consumeExtent(x, k) {
			*x = extent{}
			q.first++
		}
	}
	c.it.freed = true
	if q.head == q.tail {
		q.base += uint64(q.head)
		q.head, q.tail = 0, 0
	}
}

// consumeExtent removes n written bytes from x and reports whether x is completely written.
func (c *conn) consumeExtent(x *extent, n int) bool {
	c.tx.outside -= n
	if x.op == nil {
		x.off += n
		x.n -= n
		return x.n == 0
	}
	x.op.advance(n)
	if x.op.left > 0 {
		return false
	}
	if x.op.kind == opAM {
		c.it.written.push(x.op)
	}
	return true
}

// sendv writes a frame of hdr and iov at once if the queue is empty or can be written. It returns
// the number of bytes written.
func (c *conn) sendv(hdr []byte, iov []uct.IOV) int {
	q, it := &c.tx, c.it
	if c.state != connOpen || q.blocked {
		return 0
	}
	if !q.empty() {
		if c.flush(); !q.empty() || c.state != connOpen {
			return 0
		}
	}
	v := vector{iov: it.iov[:]}
	v.add(hdr)
	for i := range iov {
		v.add(iov[i].Buf)
	}
	n, errno := it.io.Sendv(c.fd, it.iov[:v.n])
	clear(it.iov[:v.n])
	if !c.handleWrite(n, errno) {
		return 0
	}
	q.blocked = n < v.bytes
	return n
}
