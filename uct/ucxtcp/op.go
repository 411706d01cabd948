package ucxtcp

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// op is an operation that completes after its call has returned: a zcopy send when it is written,
// or a flush when the peer has acknowledged it.
type op struct {
	next *op
	ep   *EP // nil after the EP is closed
	comp *uct.Completion
	sn   uint32 // flush: number of puts that must be acknowledged

	pieces [maxIOV][]byte
	count  int
	cur    int // index of the first piece with bytes left
	left   int // bytes still to write
}

// fill sets the pieces to the non-empty buffers of iov.
func (o *op) fill(iov []uct.IOV) {
	o.count, o.cur, o.left = 0, 0, 0
	for i := range iov {
		if b := iov[i].Buf; len(b) > 0 {
			o.pieces[o.count] = b
			o.count++
			o.left += len(b)
		}
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

// detach removes the EP, the completion and the buffers of the caller from o. It returns the
// completion, which may be nil.
func (o *op) detach() *uct.Completion {
	comp := o.comp
	o.ep, o.comp = nil, nil
	for i := o.cur; i < o.count; i++ {
		o.pieces[i] = append([]byte(nil), o.pieces[i]...)
	}
	return comp
}

// ops is a pool with a fixed number of operations.
type ops struct {
	free *op
	left int
}

func newOps(n int) ops {
	all := make([]op, n)
	p := ops{left: n}
	for i := range all {
		all[i].next = p.free
		p.free = &all[i]
	}
	return p
}

// get returns an operation. The caller has checked that left is not 0.
func (p *ops) get() *op {
	o := p.free
	p.free, o.next = o.next, nil
	p.left--
	return o
}

func (p *ops) put(o *op) {
	clear(o.pieces[:o.count])
	o.ep, o.comp = nil, nil
	o.count, o.cur, o.left = 0, 0, 0
	o.next = p.free
	p.free = o
	p.left++
}

// opList is a FIFO of operations.
type opList struct{ first, last *op }

func (l *opList) push(o *op) {
	o.next = nil
	if l.last == nil {
		l.first = o
	} else {
		l.last.next = o
	}
	l.last = o
}

func (l *opList) pop() *op {
	o := l.first
	if o == nil {
		return nil
	}
	if l.first = o.next; l.first == nil {
		l.last = nil
	}
	o.next = nil
	return o
}

// complete releases o and runs its completion.
func (it *Iface) complete(o *op, st ucs.Status) {
	if st == ucs.StatusOK && o.ep != nil && o.ep.state == epFailed {
		st = o.ep.status
	}
	comp := o.comp
	it.ops.put(o)
	it.freed = true
	if comp != nil {
		comp.Complete(st)
	}
}
