package tcp

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// maxIOV is MaxIOV of the zcopy operations. It is small so that a header, these buffers and the
// queue fit in one system call.
const maxIOV = 8

type opKind uint8

const (
	opAM     opKind = iota // zcopy active message; complete when written
	opPut                  // put with putAck
	opGet                  // get into pieces
	opAtomic               // fetching atomic
	opFlush
)

// op is an operation that completes after its call has returned. It is in conn.awaitingReply (all
// but opAM), and in an extent while it has unwritten bytes.
type op struct {
	next   *op
	ep     *endpoint // nil after the EP is closed
	comp   *uct.Completion
	kind   opKind
	status ucs.Status
	stripe bool   // part of a striped put
	got    bool   // get: DATA was received
	size   int    // atomic: length of the operand; get: length of the data
	left   int    // bytes still to write; get: bytes still to receive
	seq    uint64 // value of conn.sent after this request
	result *uint64

	pieces [maxIOV][]byte
	count  int
	cur    int // index of the first piece with bytes left
}

// fill sets the pieces to the non-empty buffers of iov without their first skip bytes.
func (o *op) fill(iov []uct.IOV, skip int) {
	o.count, o.cur, o.left = 0, 0, 0
	for i := range iov {
		b := iov[i].Buf
		if skip >= len(b) {
			skip -= len(b)
			continue
		}
		b = b[skip:]
		skip = 0
		o.pieces[o.count] = b
		o.count++
		o.left += len(b)
	}
}

// advance removes the first n bytes of the pieces.
func (o *op) advance(n int) {
	o.left -= n
	for n > 0 {
		p := o.pieces[o.cur]
		if n < len(p) {
			o.pieces[o.cur] = p[n:]
			return
		}
		n -= len(p)
		o.pieces[o.cur] = nil
		o.cur++
	}
}

// copyIn copies data to the pieces.
func (o *op) copyIn(data []byte) {
	for len(data) > 0 && o.left > 0 {
		n := copy(o.pieces[o.cur], data)
		o.advance(n)
		data = data[n:]
	}
}

// ops is a pool with a fixed number of operations.
type ops struct {
	all  []op
	free *op
	left int
}

func newOps(n int) ops {
	p := ops{all: make([]op, n), left: n}
	for i := range p.all {
		p.all[i].next = p.free
		p.free = &p.all[i]
	}
	return p
}

// get returns a cleared operation, or nil.
func (p *ops) get() *op {
	o := p.free
	if o == nil {
		return nil
	}
	p.free, o.next = o.next, nil
	p.left--
	return o
}

func (p *ops) put(o *op) {
	clear(o.pieces[:o.count])
	o.ep, o.comp, o.result = nil, nil, nil
	o.stripe = false
	o.status, o.got, o.count, o.cur, o.left = ucs.StatusOK, false, 0, 0, 0
	o.next = p.free
	p.free = o
	p.left++
}

// opList is a FIFO of operations.
type opList struct {
	first, last *op
	n           int
}

func (l *opList) push(o *op) {
	o.next = nil
	if l.last == nil {
		l.first = o
	} else {
		l.last.next = o
	}
	l.last = o
	l.n++
}

func (l *opList) pop() *op {
	o := l.first
	if o == nil {
		return nil
	}
	l.first = o.next
	if l.first == nil {
		l.last = nil
	}
	o.next = nil
	l.n--
	return o
}

// complete releases o and runs its completion. No other function runs completions of operations
// that were sent.
func (it *iface) complete(o *op, st ucs.Status) {
	if st == ucs.StatusOK {
		st = o.status
	}
	if st == ucs.StatusOK && o.ep != nil && o.ep.state == epFailed {
		st = o.ep.status
	}
	if o.stripe && o.ep != nil {
		o.ep.partCompleted()
	}
	comp := o.comp
	it.ops.put(o)
	it.freed = true
	if comp != nil {
		comp.Complete(st)
	}
}
