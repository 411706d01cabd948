package ucp

import (
	"github.com/gucx/gucx/ucp/internal/tuple"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// queuedRecv is the additional state of a receive that was in a queue. The tagRecv reuses it.
type queuedRecv struct {
	tuple.Recv[*tagRecv, *TagMessage]
	iov [2]uct.IOV
	reg *cachedReg // of the buffer; nil if the caller has registered it

	recalls bool // canceled: completes with ErrCanceled when the queue returns it
}

// tupleRecvStage is a receive in a queue. It can be canceled only by closing the queue.
var tupleRecvStage = stage{
	class: &tagRecvClass, name: "tag receive", sized: true, role: noRole, completed: (*Request).postedSettled, usesBuffer: true,
	tryCancel: (*Request).cancelQueued,
}

// cancelQueued cancels a receive by closing its queue. It reports whether the receive is complete now.
// Otherwise the receive completes when the queue returns it: with ErrCanceled, unless a message has matched.
func (r *Request) cancelQueued() bool {
	q := r.recv.queue
	q.recalls = true
	if q.Cancel() {
		q.release()
		r.ep = nil
		return true
	}
	return r.flags&reqDone != 0 && r.status == ucs.StatusCanceled
}

// makeSink allocates and registers the memory for bytes beyond the buffers of receives.
func (x *tuples) makeSink() (err error) {
	if x.sink == nil {
		x.sink, err = x.w.ctx.memory.Alloc(x.cfg.MaxMessage, uct.AccessLocalWrite)
	}
	return err
}

// Prepare implements tuple.Conn. The transport writes the message to the buffer, and bytes beyond it to
// the sink.
func (l *tupleLink) Prepare(v *tagRecv) *tuple.Recv[*tagRecv, *TagMessage] {
	if v.typed {
		return nil
	}
	q := v.queue
	if q == nil {
		q = newQueuedRecv()
		v.queue = q
	}
	q.recalls = false
	d := l.iface.domain
	var part uct.Mem
	if v.mem != nil {
		part = v.mem.In(d)
	}
	if part == nil && d.Attr.NeedMemH && len(v.buf) > 0 {
		if part = q.register(l, v.buf); part == nil {
			return nil
		}
	}
	q.iov[0].Buf, q.iov[0].Mem, q.iov[1] = v.buf, part, l.sink
	if q.IOV = q.iov[:]; len(v.buf) == 0 {
		q.IOV = q.iov[1:]
	}
	v.req.ep, v.req.stage = l.m.e, &tupleRecvStage
	return &q.Recv
}

//go:noinline
func newQueuedRecv() *queuedRecv {
	q := &queuedRecv{}
	q.Init()
	return q
}

// register returns a registration of a buffer, which is valid until the queue returns the receive. It returns nil if
// the buffer cannot be registered.
func (q *queuedRecv) register(l *tupleLink, buf []byte) uct.Mem {
	i := l.iface
	if !i.canRegister(len(buf)) {
		return nil
	}
	reg, err := l.x.w.registerCached(i.domain, buf, uct.AccessLocalWrite)
	if err != nil {
		return nil
	}
	q.reg = reg
	return reg.Mem.In(i.domain)
}

// release releases the registration that the receive had for the queue.
func (q *queuedRecv) release() {
	if q.reg != nil {
		q.reg.release()
		q.reg = nil
	}
	q.iov[0] = uct.IOV{}
}

// Received implements tuple.Conn.
func (l *tupleLink) Received(v *tagRecv, n int) {
	v.queue.release()
	v.req.ep = nil
	v.completeWith(l.m.e, v.node.Tag, n)
}

// Returned implements tuple.Conn.
func (l *tupleLink) Returned(v *tagRecv) bool {
	q, r := v.queue, v.req
	q.release()
	r.stage, r.ep = &tagRecvStage, nil
	if q.recalls || r.flags&reqGivenUp != 0 || l.x.w.closed {
		r.complete(ucs.StatusCanceled)
		return false
	}
	return true
}
