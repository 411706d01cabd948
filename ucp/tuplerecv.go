package ucp

import (
	"github.com/gucx/gucx/ucp/internal/tuple"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// queuedRecv is what a receive has besides if it was in a queue. It stays with the tagRecv.
type queuedRecv struct {
	tuple.Recv[*tagRecv, *TagMessage]
	iov [2]uct.IOV
	reg *lease // of the buffer; nil if the caller has registered it
}

// tupleRecvStage is a receive in a queue. It can be canceled only by closing the queue.
var tupleRecvStage = stage{
	name: "tag receive", sized: true, role: noRole, settled: (*Request).recvSettled, lends: true,
	stop: (*Request).cancelQueued,
}

// cancelQueued closes the queue of a receive that is to be canceled. It reports whether the
// receive has ended by that; otherwise it ends with ErrCanceled as soon as the queue gives
// it back, unless it has a message.
func (r *Request) cancelQueued() bool {
	r.flags |= reqCanceling
	if q := r.recv.queue; q.Cancel() {
		q.release()
		r.ep = nil
		return true
	}
	return r.Done() && r.status == ucs.StatusCanceled
}

// makeSink makes the memory for what is beyond the buffers of receives.
func (x *tuples) makeSink() (err error) {
	if x.sink == nil {
		x.sink, err = x.w.ctx.memory.Alloc(x.cfg.MaxMessage, uct.AccessLocalWrite)
	}
	return err
}

// Prepare implements tuple.Conn.
func (l *tupleLink) Prepare(v *tagRecv) *tuple.Recv[*tagRecv, *TagMessage] {
	if v.typed {
		return nil
	}
	q := v.queue
	if q == nil {
		q = &queuedRecv{}
		q.Init()
		v.queue = q
	}
	if !q.register(l, v) {
		return nil
	}
	v.req.ep, v.req.stage = l.m.e, &tupleRecvStage
	return &q.Recv
}

// register makes the scatter list: the buffer, and what takes the rest.
func (q *queuedRecv) register(l *tupleLink, v *tagRecv) bool {
	i, buf, mem := l.iface, v.buf, v.mem
	d := i.domain
	if len(buf) > 0 && d.Attr.NeedMemH && (mem == nil || mem.In(d) == nil) {
		if !i.leases(len(buf)) {
			return false
		}
		reg, err := l.x.w.lease(d, buf, uct.AccessLocalWrite)
		if err != nil {
			return false
		}
		q.reg, mem = reg, reg.Mem
	}
	q.iov[0] = uct.IOV{Buf: buf}
	if mem != nil {
		q.iov[0].Mem = mem.In(d)
	}
	sink := l.x.sink
	q.iov[1] = uct.IOV{Buf: sink.Bytes(), Mem: sink.In(d)}
	if q.IOV = q.iov[:]; len(buf) == 0 {
		q.IOV = q.iov[1:]
	}
	return true
}

// release gives up what the receive had for the queue.
func (q *queuedRecv) release() {
	if q.reg != nil {
		q.reg.end()
		q.reg = nil
	}
	q.iov = [2]uct.IOV{}
}

// Received implements tuple.Conn.
func (l *tupleLink) Received(v *tagRecv, n int) {
	v.queue.release()
	v.req.ep = nil
	v.end(l.m.e, v.node.Tag, n)
}

// Returned implements tuple.Conn.
func (l *tupleLink) Returned(v *tagRecv) bool {
	v.queue.release()
	r := v.req
	r.stage, r.ep = &tagRecvStage, nil
	if r.flags&(reqCanceling|reqGivenUp) != 0 || l.x.w.closed {
		r.settle(ucs.StatusCanceled)
		return false
	}
	return true
}
