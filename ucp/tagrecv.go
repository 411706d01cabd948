package ucp

import (
	"context"
	"fmt"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
)

// tagRecv is what a receive of a tagged message has besides its request. It stays with the
// request for the next one.
type tagRecv struct {
	// What a message needs of it is in two lines of the cache, at the front.
	req  *Request
	mem  *region.Mem // of buf; may be nil. Before it, so that both are cleared at once
	buf  []byte
	info *TagInfo             // may be nil
	node match.Recv[*tagRecv] // in Worker.tag.table until there is a message

	tag uint64 // of the message that comes in fragments

	typed bool // the message goes to data and not to buf
	data  data.Buffer
	err   error // that the data has found

	queue *queuedRecv // nil if it was never in a queue of the transport
	order uint64      // in which receives were posted, where there are such queues
}

// tagRecvStage is a receive. It ends early as long as it has no message.
var tagRecvStage = stage{
	class: &tagRecvClass, name: "tag receive", sized: true, role: noRole, settled: (*Request).postedSettled,
	stop: func(r *Request) bool { return r.worker.tag.table.Cancel(&r.recv.node) },
}

// tagRecvClass is receives of tagged messages. Their requests have a pool of their own, so that what does not
// differ between them is not written for each.
var tagRecvClass = class{
	write:   func(r *Request, off int, data []byte) { r.recv.write(off, data) },
	abandon: func(r *Request) { r.recv.abandon() },
}

func init() { tagRecvClass.recycle = (*Request).recycleRecv } // it names a stage of the class

// recycleRecv puts the request of a receive back into its pool.
func (r *Request) recycleRecv() {
	r.old.result, r.off, r.stage = nil, 0, &tagRecvStage
	r.comp.Count = 1
	r.worker.recycleReceived(r)
}

// TagRecv receives a message whose tag equals tag in the bits of mask, from any peer:
// the earliest unexpected message, or otherwise the next that arrives. A message matches the
// receive that was posted first.
//
// If the request is nil, the message is in buf, and info, which may be nil, is set.
// Otherwise buf and info belong to the worker until the request is complete: when the
// message is in buf, or with an error if the EP of the message fails or closes,
// or with ErrCanceled by [Worker.Close] or by [Request.Cancel], which succeeds before a message
// has matched. A message that is longer than buf fills it and completes with ErrTruncated;
// info has its length. Errors: ErrTruncated, ErrClosed; ErrInvalidParam if OpParams.Mem does
// not cover buf.
func (w *Worker) TagRecv(buf []byte, tag, mask uint64, info *TagInfo, p *OpParams) (*Request, error) {
	if w.tag.unusual {
		return w.tagRecvSlow(buf, tag, mask, info, p)
	}
	var mem *region.Mem
	if p != nil {
		if mem = (*region.Mem)(p.Mem); p.OnDone != nil || mem != nil && !mem.Covers(buf) {
			return w.tagRecvSlow(buf, tag, mask, info, p)
		}
	}
	if w.tag.table.Unexpected() > 0 {
		if m := w.tag.table.Take(tag, mask); m != nil {
			return m.Owner.taken().recv(buf, info, p)
		}
	}
	r := w.pool.receives
	if r == nil {
		return w.tagRecvSlow(buf, tag, mask, info, p)
	}
	w.pool.receives = r.next
	r.flags = 0
	v := r.recv
	v.buf, v.mem, v.info = buf, mem, info
	v.node.Tag, v.node.Mask = tag, mask
	w.tag.table.Expect(&v.node)
	return r, nil
}

// tagRecvSlow is TagRecv for all cases.
//
//go:noinline
func (w *Worker) tagRecvSlow(buf []byte, tag, mask uint64, info *TagInfo, p *OpParams) (*Request, error) {
	if p != nil && p.Mem != nil && !(*region.Mem)(p.Mem).Covers(buf) {
		return nil, recvError(len(buf), errNotCovered)
	}
	if x := w.tag.matcher; x != nil && !w.closed {
		return x.receiveInto(buf, tag, mask, info, p)
	}
	if m := w.tag.table.Take(tag, mask); m != nil {
		return m.Owner.taken().recv(buf, info, p)
	}
	if w.closed {
		return nil, recvError(len(buf), ucs.ErrClosed)
	}
	r := w.newTagRecv(buf, info, p)
	v := r.recv
	v.node.Tag, v.node.Mask = tag, mask
	w.tag.table.Expect(&v.node)
	w.receivePosted(tag, mask)
	r.tells()
	return r, nil
}

// TagRecvWait is TagRecv, and returns when the message is in buf. If ctx is done first, it returns the error of
// ctx, and buf belongs to the caller: a message that was being received into buf is lost,
// any other stays for the next receive.
func (w *Worker) TagRecvWait(ctx context.Context, buf []byte, tag, mask uint64, p *OpParams) (TagInfo, error) {
	if err := w.begin(); err != nil {
		return TagInfo{}, err
	}
	info := &w.tag.info
	*info = TagInfo{}
	r, err := w.TagRecv(buf, tag, mask, info, p)
	err = w.finish(ctx, r, err)
	return *info, err
}

// errNotCovered refuses memory that the buffer of a receive is not in.
var errNotCovered = fmt.Errorf("%w: the buffer is not in OpParams.Mem", ucs.ErrInvalidParam)

// recvError is the error of a receive into n bytes that has no EP to do with it.
func recvError(n int, cause error) error {
	return &Error{Op: action{stage: &tagRecvStage, n: n}.String(), Err: cause}
}

// newTagRecv takes a request for a receive.
func (w *Worker) newTagRecv(buf []byte, info *TagInfo, p *OpParams) *Request {
	r := w.pool.receives
	if r == nil {
		r = w.newDirect()
		v := &tagRecv{req: r}
		v.node.Owner = v
		r.recv = v
	} else {
		w.pool.receives = r.next
	}
	r.ep, r.stage, r.flags = nil, &tagRecvStage, 0
	v := r.recv
	v.buf, v.info = buf, info
	if p != nil {
		v.mem, r.onDone = (*region.Mem)(p.Mem), p.OnDone
	}
	return r
}

// postedSettled is recvSettled for a receive whose message was not announced: its error tells
// the length of the buffer, which goes now.
func (r *Request) postedSettled() {
	r.off = len(r.recv.buf)
	r.recvSettled()
}

// recvSettled lets go of what was the caller's. An Unpacker may have another opinion of how
// the receive has ended.
func (r *Request) recvSettled() {
	if v := r.recv; v.typed {
		r.status = v.finish(r.status.Err())
	}
	r.recv.release()
}

// finish tells the data that nothing more comes, and returns how the receive ends.
func (v *tagRecv) finish(err error) ucs.Status {
	if v.err != nil {
		err = v.err
	}
	if err = v.data.Finish(err); err != nil {
		return statusOf(err)
	}
	return ucs.StatusOK
}

// release lets go of what was the caller's.
func (v *tagRecv) release() {
	v.buf, v.mem, v.info = nil, nil, nil
	if v.typed {
		v.typed, v.data, v.err = false, data.Buffer{}, nil
	}
}

// abandon is release for a receive that goes on without its caller.
func (v *tagRecv) abandon() {
	if v.typed {
		v.finish(ucs.ErrCanceled)
	}
	v.release()
}

// room is how long a message may be.
func (v *tagRecv) room() int {
	if v.typed {
		return v.data.Len()
	}
	return len(v.buf)
}

// tell fills what the caller wants to know.
func (v *tagRecv) tell(from *EP, tag uint64, n int) {
	if v.info != nil {
		v.info.Tag, v.info.Length, v.info.From = tag, n, from
	}
}

// end ends the receive of a message of n bytes that is in the buffer.
func (v *tagRecv) end(from *EP, tag uint64, n int) {
	v.tell(from, tag, n)
	r := v.req
	switch {
	case n > v.room():
		r.settle(ucs.StatusTruncated)
	case r.flags != 0 || v.typed:
		r.settle(ucs.StatusOK)
	default:
		v.release()
		r.flags = recvDone
	}
}

// write implements sink.
func (v *tagRecv) write(off int, data []byte) {
	switch {
	case !v.typed && off < len(v.buf):
		bulk.Copy(v.buf[off:], data)
	case v.typed && v.err == nil:
		v.err = v.unpack(off, data)
	}
}

// unpack writes to the data. That there is more than fits is seen when the message has
// ended.
func (v *tagRecv) unpack(off int, data []byte) error {
	if !v.data.Generic() {
		data = data[:min(len(data), max(v.data.Len()-off, 0))]
	}
	_, err := v.data.Unpack(off, data)
	return err
}

// whole implements sink.
func (v *tagRecv) whole(in *inbound) {
	in.msgs.received(in.total)
	v.end(in.e, v.tag, in.total)
}

// broken implements sink. The receive ends with what became of the EP.
func (v *tagRecv) broken(in *inbound, st ucs.Status) {
	in.msgs.received(in.total)
	v.req.ep = in.e
	v.req.settle(st)
}

// cancelReceives ends the receives that have no message, when the worker closes.
func (w *Worker) cancelReceives() {
	for v := range w.tag.table.Receives() {
		v.Owner.req.Cancel()
	}
	if w.tag.matcher != nil {
		w.tag.matcher.cancelAll()
	}
}

// TagRecvData is [Worker.TagRecv] into any [Data]. An Unpacker is called from Progress, or by
// this call; its last call, Finish, is before the request completes. If it
// returns an error, the receive completes with the status of that error (StatusInternal if ucs has
// none for it). The data of a rendezvous message is assembled in a buffer first, unless gets write it
// to the buffers of a list.
func (w *Worker) TagRecvData(d Data, tag, mask uint64, info *TagInfo, p *OpParams) (*Request, error) {
	if b, ok := d.buffer.Contiguous(); ok {
		return w.TagRecv(b, tag, mask, info, p)
	}
	if err := d.buffer.Validate(); err != nil {
		return nil, recvError(0, fmt.Errorf("%w: the data has no valid length, or nothing takes it", err))
	}
	if w.closed {
		return nil, recvError(0, ucs.ErrClosed)
	}
	r := w.newTagRecv(nil, info, nil)
	v := r.recv
	v.data, v.typed, r.onDone = d.buffer, true, p.onDone()
	if x := w.tag.matcher; x != nil {
		return x.receive(v, tag, mask)
	}
	if m := w.tag.table.Take(tag, mask); m != nil {
		return m.Owner.taken().give(v)
	}
	v.node.Tag, v.node.Mask = tag, mask
	w.tag.table.Expect(&v.node)
	w.receivePosted(tag, mask)
	r.tells()
	return r, nil
}
