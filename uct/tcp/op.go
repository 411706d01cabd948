package tcp

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// maxIOV is MaxIOV of the zero-copy operations: a header, these pieces, and what
// was joined before fit into one system call with little copying of iovecs.
const maxIOV = 8

type opKind uint8

const (
	opAM     opKind = iota // zero-copy send, until it is written
	opPut                  // zero-copy put, until it is answered
	opGet                  // get into pieces
	opAtomic               // fetching atomic
	opFlush
)

// op is an operation that is not over when its call returns. It is in the list of
// answers to come (all but opAM), and named by an extent while bytes of it are to
// be written.
type op struct {
	next   *op
	ep     *EP // nil once the EP is closed
	comp   *uct.Completion
	kind   opKind
	status ucs.Status
	stripe bool   // part of a striped put
	got    bool   // get: the data has come
	size   int    // atomic: bytes of the word; get: bytes wanted
	left   int    // bytes to write, or for a get to come
	seq    uint64 // requests sent on the connection up to this one
	result *uint64

	pieces [maxIOV][]byte
	count  int
	cur    int // first piece that has bytes left
}

// fill takes the non-empty pieces of iov without their first skip bytes.
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

// advance drops the first n bytes of what is left.
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

// take copies data into the pieces.
func (o *op) copyIn(data []byte) {
	for len(data) > 0 && o.left > 0 {
		n := copy(o.pieces[o.cur], data)
		o.advance(n)
		data = data[n:]
	}
}

// ops is a fixed number of operations with a free list.
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

// complete ends o: the one place where completions run.
func (it *Iface) complete(o *op, st ucs.Status) {
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
