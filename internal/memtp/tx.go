package memtp

import (
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// opKind is the type of an operation.
type opKind uint8

const (
	opAM opKind = iota
	opPut
	opNotify // a put with notification
	opGet
	opAtomic
	opFlush
	opSend   // send to a queue
	opRecall // recall of sends to a queue
)

// op is one posted operation. The data of a send or put is buf[:n] followed by iov; a get writes to iov.
type op struct {
	kind   opKind
	id     uint8
	word   uint32
	c      *uct.Completion // nil without completion
	n      int
	buf    []byte // bounce buffer of maxBcopy bytes
	iov    [maxIOV]uct.IOV
	pieces int
	raddr  uint64
	key    uct.RKey

	atomic         uct.AtomicOp
	size           int
	compare, value uint64
	result         *uint64
}

// tx is the ring of operations of an EP.
type tx struct {
	ops   []op
	first int
	n     int
}

func (q *tx) init(depth int) {
	q.ops = make([]op, depth)
	for k := range q.ops {
		q.ops[k].buf = make([]byte, maxBcopy)
	}
}

func (q *tx) full() bool { return q.n == len(q.ops) }

func (q *tx) head() *op { return &q.ops[q.first] }

// push adds an operation to the ring, which must not be full.
func (q *tx) push(kind opKind, c *uct.Completion) *op {
	o := &q.ops[(q.first+q.n)%len(q.ops)]
	q.n++
	*o = op{kind: kind, c: c, buf: o.buf}
	return o
}

// pop removes the operation at the head and returns its completion.
func (q *tx) pop() *uct.Completion {
	o := q.head()
	c := o.c
	*o = op{buf: o.buf}
	q.first = (q.first + 1) % len(q.ops)
	q.n--
	return c
}

// setIOV copies the list, but not the data that it refers to.
func (o *op) setIOV(iov []uct.IOV) { o.pieces = copy(o.iov[:], iov) }

// len returns the number of bytes that the operation transfers.
func (o *op) len() int { return o.n + uct.IOVLen(o.iov[:o.pieces]) }

// gather copies the data of a send or put to dst.
func (o *op) gather(dst []byte) {
	n := copy(dst, o.buf[:o.n])
	for _, v := range o.iov[:o.pieces] {
		n += copy(dst[n:], v.Buf)
	}
}

// scatter copies src to the iov of a get.
func (o *op) scatter(src []byte) {
	for _, v := range o.iov[:o.pieces] {
		src = src[copy(v.Buf, src):]
	}
}

// perRound is the maximum number of operations of an EP that one Progress executes.
const perRound = 2

// progress executes operations from the head of the ring.
func (e *EP) progress() int {
	n := 0
	for n < perRound && e.failure == ucs.StatusOK && (e.tx.n > 0 || e.watches()) {
		e.iface.world.mu.Lock()
		if st := e.peerStatus(); st != ucs.StatusOK {
			e.iface.world.mu.Unlock()
			e.fail(st)
			return n + 1
		}
		if e.tx.n == 0 || !e.ready(e.tx.head()) {
			e.iface.world.mu.Unlock()
			return n
		}
		st := e.execute(e.tx.head())
		e.iface.world.mu.Unlock()
		n++
		if st != ucs.StatusOK {
			e.fail(st)
			return n
		}
		e.finish()
	}
	return n
}

// ready reports whether the target has the resources for the operation. The caller holds world.mu.
func (e *EP) ready(o *op) bool {
	if e.peer == nil || e.conn && !e.connected() {
		return false
	}
	return o.kind != opAM && o.kind != opNotify || e.peer.rx.free.n > 0
}

// execute executes the operation and returns its status. The caller holds world.mu.
func (e *EP) execute(o *op) ucs.Status {
	switch o.kind {
	case opAM:
		d := e.peer.rx.free.pop()
		d.id, d.n = o.id, o.len()
		o.gather(d.data())
		e.peer.rx.filled.push(d)
		e.peer.signal(uct.EventRecv)
	case opPut:
		return e.put(o)
	case opNotify:
		return e.notify(o)
	case opGet:
		return e.get(o)
	case opAtomic:
		return e.atomic(o)
	}
	return ucs.StatusOK
}

func (e *EP) put(o *op) ucs.Status {
	n := o.len()
	if n == 0 {
		return ucs.StatusOK
	}
	dst := e.iface.world.reach(o.key, o.raddr, n, uct.AccessRemoteWrite)
	if dst == nil {
		return ucs.StatusRemoteAccess
	}
	o.gather(dst)
	return ucs.StatusOK
}

// notify executes the put and appends the notification to the receive queue of the peer.
func (e *EP) notify(o *op) ucs.Status {
	if st := e.put(o); st != ucs.StatusOK {
		return st
	}
	d := e.peer.rx.free.pop()
	d.to, d.word = e.iface.world.eps[e.peerEP], o.word
	e.peer.rx.filled.push(d)
	e.peer.signal(uct.EventRecv)
	return ucs.StatusOK
}

func (e *EP) get(o *op) ucs.Status {
	n := o.len()
	if n == 0 {
		return ucs.StatusOK
	}
	src := e.iface.world.reach(o.key, o.raddr, n, uct.AccessRemoteRead)
	if src == nil {
		return ucs.StatusRemoteAccess
	}
	o.scatter(src)
	return ucs.StatusOK
}

func (e *EP) atomic(o *op) ucs.Status {
	word := e.iface.world.reach(o.key, o.raddr, o.size, uct.AccessRemoteAtomic)
	if word == nil {
		return ucs.StatusRemoteAccess
	}
	var old uint64
	if o.size == 4 {
		old = uint64(binary.NativeEndian.Uint32(word))
		binary.NativeEndian.PutUint32(word, uint32(o.atomic.Apply(4, old, o.compare, o.value)))
	} else {
		old = binary.NativeEndian.Uint64(word)
		binary.NativeEndian.PutUint64(word, o.atomic.Apply(8, old, o.compare, o.value))
	}
	if o.result != nil {
		*o.result = old
	}
	return ucs.StatusOK
}

// finish completes the operation at the head of the ring with StatusOK.
func (e *EP) finish() {
	if c := e.tx.pop(); c != nil {
		c.Complete(ucs.StatusOK)
	}
}

// fail fails the EP and completes all operations in the ring with st.
func (e *EP) fail(st ucs.Status) {
	e.failure, e.refusal = st, fmt.Errorf("%w: %w", uct.ErrEPFailed, st.Err())
	for e.tx.n > 0 {
		if c := e.tx.pop(); c != nil {
			c.Complete(st)
		}
	}
	e.completeSends(st)
	if e.iface.onError != nil {
		e.iface.onError(e, e.failure.Err())
	}
}
