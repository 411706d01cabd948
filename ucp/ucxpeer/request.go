package ucxpeer

import (
	"context"

	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Request is an operation in progress. Only the goroutine that owns the worker may use it. A nil Request is
// an operation that was complete, without error, when the call that started it returned.
type Request struct {
	w      *Worker
	ep     *EP // nil for receives of tagged messages
	op     *op
	buf    data.Buffer
	status ucs.Status // StatusInProgress until it ends
	detail error      // the error with more detail than status; nil if there is none
	onDone func(error)

	off    int    // bytes posted, or received
	id     uint64 // id for the peer; 0 if there is none
	arg    uint64 // tag or remote address; of a flush the operation to wait for
	header []byte // header of an active message
	amID   uint16
	flags  uint16
	posted bool // everything was posted
	waits  bool // waits for a reply of the peer
	comp   uct.Completion
	tail   [16]byte // tail of fragments in flight by zcopy

	// Links of the list EP.live and of the queue of the EP.
	prev, next, queued *Request
	listed             bool

	recv match.Recv[*Request]
	info *TagInfo
	msg  *message // the message that a receive has matched

	stream streamRecv
	remote remoteOp
}

// request returns a Request for an operation, which has not started.
func (w *Worker) request(o *op, onDone func(error)) *Request {
	r := w.freeRequest
	if r != nil {
		w.freeRequest = nil
	} else {
		r = &Request{w: w}
		r.comp.Func = r.zcopyDone
	}
	r.op, r.onDone = o, onDone
	return r
}

// recycle stores the Request of an operation that completed at once, for reuse: the program has not seen it. One Request
// is sufficient, because there is one such operation at a time.
func (w *Worker) recycle(r *Request) {
	done := r.comp.Func
	*r = Request{w: w}
	r.comp.Func = done
	w.freeRequest = r
}

// op is a type of operation.
type op struct {
	name string
	// post posts the operation, as far as the transport has room. nil means that everything was posted,
	// uct.ErrNoResource that it must be called again. Any other error fails the EP.
	post func(*Request) error
	// remote means that the operation needs the id of the peer's endpoint.
	remote bool
}

// Done reports whether the operation is complete.
func (r *Request) Done() bool { return r == nil || r.status != ucs.StatusInProgress }

// Status returns the result of the operation; StatusInProgress if it is not complete.
func (r *Request) Status() ucs.Status {
	if r == nil {
		return ucs.StatusOK
	}
	return r.status
}

// Err returns the error of the operation; nil if it succeeded or is not complete.
func (r *Request) Err() error {
	if r == nil || r.status == ucs.StatusOK || r.status == ucs.StatusInProgress {
		return nil
	}
	return &ucs.OpError{TL: "ucx", Op: r.op.name, Err: ucs.Because(r.status, r.detail)}
}

// Count returns the number of bytes received by a StreamRecv or a receive of a message.
func (r *Request) Count() int {
	if r == nil {
		return 0
	}
	return r.off
}

// Wait makes progress until the operation is complete, and returns its error. If ctx is done first, Wait returns the error
// of ctx, and the operation continues to use its buffer: call Cancel, or wait again.
func (r *Request) Wait(ctx context.Context) error {
	if r.Done() {
		return r.Err()
	}
	if err := r.w.Until(ctx, r.Done); err != nil {
		return err
	}
	return r.Err()
}

// Cancel completes an operation with StatusCanceled and returns true if it is a receive that has matched no message, or a
// send of which nothing was posted. Otherwise it has no effect and returns false.
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

// end completes the operation, once.
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

// endIfDone completes a send if everything was posted, nothing is in flight, and no reply is outstanding.
func (r *Request) endIfDone() {
	if r.posted && r.comp.Count == 0 && !r.waits {
		r.end(r.comp.Status, nil)
	}
}

// zcopyDone is called by the transport when no bytes of a request are in flight.
func (r *Request) zcopyDone(*uct.Completion) { r.endIfDone() }

// wireID returns the id of the request for the peer, and assigns one if it has none.
func (r *Request) wireID() uint64 {
	if r.id == 0 {
		r.id = r.w.reqs.Add(r)
	}
	return r.id
}
