package ucp

import (
	"context"
	"fmt"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
)

// tagRecv is the part of a request that receives a tagged message. The request keeps it in the pool, for the next receive.
type tagRecv struct {
	// Fields that an arriving message needs are in two cache lines, at the front.
	req  *Request
	mem  *region.Mem // of buf; may be nil. Before it, so that both are cleared at once
	buf  []byte
	info *TagInfo             // may be nil
	node match.Recv[*tagRecv] // in Worker.tag.table until a message matches

	tag uint64 // of a message that arrives in fragments

	typedData // instead of buf, if it is typed

	queue *queuedRecv // nil if it was never in a queue of the transport
	order uint64      // order of posting, where there are such queues
}

// tagRecvStage is a receive. It can be canceled until a message matches.
var tagRecvStage = stage{
	class: &tagRecvClass, name: "tag receive", sized: true, role: noRole, completed: (*Request).postedSettled,
	tryCancel: func(r *Request) bool { return r.worker.tag.table.Cancel(&r.recv.node) },
}

// tagRecvClass is the class of receives of tagged messages. Their requests have a pool of their own, so that fields
// that are the same in all receives are not set each time.
var tagRecvClass = class{
	write:   func(r *Request, off int, data []byte) { r.recv.write(off, data) },
	abandon: func(r *Request) { r.recv.abandon() },
}

func init() { tagRecvClass.recycle = (*Request).recycleRecv } // it names a stage of the class

// recycleRecv returns the request of a receive to that pool.
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
	if w.tag.slowTagRecv {
		return w.tagRecvSlow(buf, tag, mask, info, p)
	}
	var mem *region.Mem
	if p != nil {
		if mem = (*region.Mem)(p.Mem); p.OnDone != nil || p.Flags != 0 || mem != nil && !mem.Covers(buf) {
			return w.tagRecvSlow(buf, tag, mask, info, p)
		}
	}
	if w.tag.table.Unexpected() > 0 {
		if m := w.tag.table.Take(tag, mask); m != nil {
			return m.Owner.unlink().recv(buf, info, p)
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

// tagRecvSlow implements TagRecv for all cases.
//
//go:noinline
func (w *Worker) tagRecvSlow(buf []byte, tag, mask uint64, info *TagInfo, p *OpParams) (*Request, error) {
	if p != nil && p.Mem != nil && !(*region.Mem)(p.Mem).Covers(buf) {
		return nil, recvError(len(buf), errNotCovered)
	}
	if p.flags() != 0 {
		if err := w.checkReceiveFlags(tag, mask, p.Flags); err != nil {
			return nil, receiveRefused(len(buf), err)
		}
	}
	if x := w.tag.matcher; x != nil && !w.closed {
		r, err := x.receiveInto(buf, tag, mask, info, p)
		return w.completeLater(p, r, err)
	}
	if m := w.tag.table.Take(tag, mask); m != nil {
		r, err := m.Owner.unlink().recv(buf, info, p)
		return w.completeLater(p, r, err)
	}
	if w.closed {
		return nil, recvError(len(buf), ucs.ErrClosed)
	}
	r := w.newTagRecv(buf, info, p)
	v := r.recv
	v.node.Tag, v.node.Mask = tag, mask
	w.tag.table.Expect(&v.node)
	w.receivePosted(tag, mask)
	r.armOnDone()
	return r, nil
}

// checkReceiveFlags returns the reason for which a receive with these flags cannot be posted: ErrNoResource if it has CompleteNow
// and no complete message matches.
func (w *Worker) checkReceiveFlags(tag, mask uint64, f OpFlags) error {
	if err := f.check(); err != nil || f&CompleteNow == 0 || w.closed {
		return err
	}
	m := w.tag.table.Peek(tag, mask)
	if m == nil || m.Owner.in != nil || m.Owner.rndv != nil || w.tag.matcher != nil {
		return ucs.ErrNoResource
	}
	return nil
}

// receiveRefused returns the error of a receive into n bytes. ErrNoResource is not wrapped.
func receiveRefused(n int, err error) error {
	if err == ucs.ErrNoResource {
		return err
	}
	return recvError(n, err)
}

// TagRecvWait is TagRecv, and returns when the message is in buf. If ctx is done first, it returns the error of
// ctx, and buf belongs to the caller: a message that was being received into buf is lost,
// any other message remains for the next receive.
func (w *Worker) TagRecvWait(ctx context.Context, buf []byte, tag, mask uint64, p *OpParams) (TagInfo, error) {
	if err := w.beginBlocking(); err != nil {
		return TagInfo{}, err
	}
	info := &w.tag.info
	*info = TagInfo{}
	r, err := w.TagRecv(buf, tag, mask, info, p)
	err = w.finishBlocking(ctx, r, err)
	return *info, err
}

// errNotCovered is returned for a registration that does not cover the buffer of a receive.
var errNotCovered = fmt.Errorf("%w: the buffer is not in OpParams.Mem", ucs.ErrInvalidParam)

// recvError is the error of a receive into n bytes that concerns no EP.
func recvError(n int, cause error) error {
	return &Error{Op: action{stage: &tagRecvStage, n: n}.String(), Err: cause}
}

// newTagRecv returns a request for a receive.
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

// postedSettled is recvSettled for a receive whose message was not announced: its error contains
// the length of the buffer, which is released now.
func (r *Request) postedSettled() {
	r.off = len(r.recv.buf)
	r.recvSettled()
}

// recvSettled releases the buffer of the caller. An Unpacker may change the result of
// the receive.
func (r *Request) recvSettled() {
	if v := r.recv; v.typed {
		r.status = v.finish(r.status.Err())
	}
	r.recv.release()
}

// release releases the buffer of the caller.
func (v *tagRecv) release() {
	v.buf, v.mem, v.info = nil, nil, nil
	if v.typed {
		v.typedData = typedData{}
	}
}

// abandon is release for a receive that continues without its caller.
func (v *tagRecv) abandon() {
	v.typedData.abandon()
	v.release()
}

// room returns the maximum length of a message.
func (v *tagRecv) room() int {
	if v.typed {
		return v.data.Len()
	}
	return len(v.buf)
}

// setInfo sets the info of the caller.
func (v *tagRecv) setInfo(from *EP, tag uint64, n int) {
	if v.info != nil {
		v.info.Tag, v.info.Length, v.info.From = tag, n, from
	}
}

// completeWith completes the receive of a message of n bytes that is in the buffer.
func (v *tagRecv) completeWith(from *EP, tag uint64, n int) {
	v.setInfo(from, tag, n)
	r := v.req
	switch {
	case n > v.room():
		r.complete(ucs.StatusTruncated)
	case r.flags != 0 || v.typed:
		r.complete(ucs.StatusOK)
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
	case v.typed:
		v.typedData.write(off, data)
	}
}

// complete implements sink.
func (v *tagRecv) complete(in *inbound) {
	in.msgs.received(in.total)
	v.completeWith(in.e, v.tag, in.total)
}

// fail implements sink. The receive completes with the error of the EP.
func (v *tagRecv) fail(in *inbound, st ucs.Status) {
	in.msgs.received(in.total)
	v.req.ep = in.e
	v.req.complete(st)
}

// cancelReceives cancels the receives that match no message, when the worker closes.
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
	if err := d.buffer.ValidateReceive(); err != nil {
		return nil, recvError(0, fmt.Errorf("%w: the data has no valid length, or nothing takes it", err))
	}
	if w.closed {
		return nil, recvError(0, ucs.ErrClosed)
	}
	if err := w.checkReceiveFlags(tag, mask, p.flags()); err != nil {
		return nil, receiveRefused(0, err)
	}
	r := w.newTagRecv(nil, info, nil)
	v := r.recv
	v.typedData, r.onDone = typedData{data: d.buffer, typed: true}, p.onDone() // all fields: see write
	if x := w.tag.matcher; x != nil {
		r, err := x.receive(v, tag, mask)
		return w.completeLater(p, r, err)
	}
	if m := w.tag.table.Take(tag, mask); m != nil {
		r, err := m.Owner.unlink().deliverTo(v)
		return w.completeLater(p, r, err)
	}
	v.node.Tag, v.node.Mask = tag, mask
	w.tag.table.Expect(&v.node)
	w.receivePosted(tag, mask)
	r.armOnDone()
	return r, nil
}
