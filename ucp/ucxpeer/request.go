package ucxpeer

import (
	"context"

	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Request is an operation in progress. The goroutine that owns the worker uses it. Methods of a nil Request
// report that the operation completed without error when it was started.
type Request struct {
	w      *Worker
	ep     *EP // nil for receives of tagged messages
	op     *op
	buf    data.Buffer
	status ucs.Status // StatusInProgress until it ends
	detail error      // says more than status; nil: it does not
	onDone func(error)

	off    int    // bytes posted, or received
	id     uint64 // its name for the peer; 0: none
	word   uint64 // tag, message id or remote address
	header []byte // of an active message, as it goes on the wire
	amID   uint16
	flags  uint16
	posted bool // all of it
	waits  bool // for a reply of the peer
	comp   uct.Completion
	tail   [16]byte // behind the data in flight by zcopy

	// Links of the list of requests of an EP that have not ended, and of its queue.
	prev, next, queued *Request
	listed             bool

	recv match.Recv[*Request]
	info *TagInfo
	msg  *message // that a receive is matched with

	stream streamRecv
	remote remoteOp
}

// request returns a Request for an operation, which has not started.
func (w *Worker) request(o *op, onDone func(error)) *Request {
	r := w.idle
	if r != nil {
		w.idle = nil
	} else {
		r = &Request{w: w}
		r.comp.Func = r.zcopyDone
	}
	r.op, r.onDone = o, onDone
	return r
}

// recycle reuses the Request of an operation that completed at once: nobody has seen it. One is enough, as there is
// one at a time.
func (w *Worker) recycle(r *Request) {
	done := r.comp.Func
	*r = Request{w: w}
	r.comp.Func = done
	w.idle = r
}

// op is a type of operation.
type op struct {
	name string
	// post sends as much as there is room for. nil: all of it. uct.ErrNoResource: call it again. Any other
	// error fails the EP.
	post func(*Request) error
	// remote: it names the endpoint of the peer, which must be known.
	remote bool
}

// Done reports that the operation has ended.
func (r *Request) Done() bool { return r == nil || r.status != ucs.StatusInProgress }

// Status is how the operation ended; StatusInProgress if it has not.
func (r *Request) Status() ucs.Status {
	if r == nil {
		return ucs.StatusOK
	}
	return r.status
}

// Err is the error with which the operation ended; nil if it succeeded or has not ended.
func (r *Request) Err() error {
	if r == nil || r.status == ucs.StatusOK || r.status == ucs.StatusInProgress {
		return nil
	}
	return &ucs.OpError{TL: "ucx", Op: r.op.name, Err: ucs.Because(r.status, r.detail)}
}

// Count is the number of bytes that were received, of a StreamRecv or a receive of a message.
func (r *Request) Count() int {
	if r == nil {
		return 0
	}
	return r.off
}

// Wait makes progress until the operation has ended or ctx has, and returns how it ended. If ctx ends first, its
// error is returned, and the operation and the use of its buffer continue: Cancel it, or wait again.
func (r *Request) Wait(ctx context.Context) error {
	if r.Done() {
		return r.Err()
	}
	if err := r.w.Until(ctx, r.Done); err != nil {
		return err
	}
	return r.Err()
}

// Cancel ends an operation with StatusCanceled if it can be: a receive that no message was matched with, or a
// send of which nothing was posted. It reports whether it did.
func (r *Request) Cancel() bool {
	if r.Done() {
		return false
	}
	switch {
	case r.op == &opTagRecv:
		if !r.w.tags.Cancel(&r.recv) {
			return false
		}
	case r.op == &opStreamRecv:
		if r.off > 0 || !r.ep.stream.cancel(r) {
			return false
		}
	case r.off == 0 && r.ep != nil && r.id == 0 && r.ep.unqueue(r):
	default:
		return false
	}
	r.end(ucs.StatusCanceled, nil)
	return true
}

// end ends the operation, once.
func (r *Request) end(st ucs.Status, detail error) {
	if r.status != ucs.StatusInProgress {
		return
	}
	if r.op == &opTagRecv || r.op == &opActiveRecv {
		if err := r.buf.Finish(ucs.Because(st, detail)); st == ucs.StatusOK && err != nil {
			st, detail = ucs.StatusIOError, err
		}
	}
	r.status, r.detail = st, detail
	if r.id != 0 {
		r.w.reqs.Remove(r.id)
		r.id = 0
	}
	r.msg = nil
	if r.listed {
		r.ep.unlist(r)
	}
	if r.onDone != nil {
		r.onDone(r.Err())
	}
	if r.ep != nil {
		r.ep.closeIfIdle()
	}
}

// endIfDone ends a send of which all was posted and released, and for which no reply is due.
func (r *Request) endIfDone() {
	if r.posted && r.comp.Count == 0 && !r.waits {
		r.end(r.comp.Status, nil)
	}
}

// zcopyDone is called by the transport when no bytes of a request are in flight.
func (r *Request) zcopyDone(*uct.Completion) { r.endIfDone() }

// name gives the request a name for the peer.
func (r *Request) name() uint64 {
	if r.id == 0 {
		r.id = r.w.reqs.Add(r)
	}
	return r.id
}
