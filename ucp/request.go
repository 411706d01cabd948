package ucp

import (
	"fmt"

	"github.com/gucx/gucx/internal/handle"
	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Request is an operation that was not complete when its call returned. It is pooled: Wait, Test
// when it returns done, and Release release it. After that it must not be
// used, because another operation may have it; until then Wait and Test return
// ErrInvalidParam. It belongs to the goroutine that owns the worker.
//
// It completes once, when no transport uses its buffer any more, also when its EP fails or is closed.
type Request struct {
	// comp must be the first field, because requestOf converts a pointer to it. It counts the transport operations in
	// flight, and one more while some are not posted yet. Transports refer to it until all of them have completed.
	comp uct.Completion

	// The fields that a receive of a tagged message uses are together: hundreds of receives may be posted,
	// and each must use few cache lines.
	flags  reqFlags
	status ucs.Status
	lane   uint8 // number of a lane: the next one to flush, or the one of a part of a transfer
	atomic atomicOp
	next   *Request // in EP.ops or EP.awaited, in the order in which operations were issued; in the pool
	recv   *tagRecv // state of a receive of a tagged message, which the request keeps in the pool; nil for all others
	worker *Worker

	prev  *Request // in EP.ops or EP.awaited
	pend  uct.PendingReq
	ep    *EP // nil for a request of a worker
	stage *stage

	completionTarget
	localData
	target peerRange
	old    oldWord
	remote uint64   // id of the request, which a reply of the peer contains; 0 if it has none
	msg    *message // nil if the request is not a message
	record record
}

// completionTarget has what is notified when the request completes.
type completionTarget struct {
	parent *Request    // request that waits for this one; nil if there is none
	onDone func(error) // OpParams.OnDone; called if reqOnDone is set
}

// localData is the memory of this side that a transfer reads or writes.
type localData struct {
	buf    []byte
	off    int         // bytes of buf that are posted
	mem    *region.Mem // registration of buf; may be nil
	cached *cachedReg  // cached registration that mem is from; nil if the caller has registered buf
	pieces *pieceList  // memory of a put or get of a list, instead of buf
	iov    [1]uct.IOV
}

// peerRange is memory of the peer.
type peerRange struct {
	key  *RKey
	addr uint64
}

// atomicOp is the operation of an atomic. It is valid if stage.opped is set.
type atomicOp struct {
	op   uct.AtomicOp
	size uint8 // size of the word in bytes: 4 or 8
}

// oldWord is the value of a word before the atomic that fetches it.
type oldWord struct {
	word   uint64  // the transport stores the value here
	result *uint64 // destination of the caller; nil if it does not need the value
}

// reqFlags is the place of a request, a number in the lowest bits, and flags.
type reqFlags uint32

// The places of a request. awaits tests a bit, all other code compares the number.
const (
	placeNone      reqFlags = 0 // in no list, and counted nowhere
	placeListed    reqFlags = 1 // in EP.ops
	placeAwaited   reqFlags = 2 // in EP.awaited: it waits for a reply of the peer. placeDelegated has this bit, and no other place
	placeDelegated reqFlags = 3 // in EP.awaited: a child does the work and completes it
	placeDirect    reqFlags = 4 // posted in one call: counted in EP.counts; or a receive that its message has completed
	placeFree      reqFlags = 5 // in the pool

	reqPlace reqFlags = 7 // the bits of the place
)

const (
	reqQueued   reqFlags = 8 << iota // in the pending queue of a lane
	reqWaiting                       // in EP.waiting
	reqDequeued                      // removed from EP.waiting because it is its turn, and being started
	reqUnposted                      // not posted completely: counted in EP.counts
	reqPosted                        // a part was posted; of a flush or fence: all earlier operations have completed
	reqDone                          // complete; status is final
	reqReleased                      // released: returns to the pool when it is complete
	reqGivenUp                       // abandoned by the caller: nothing more is posted, and its buffer must not be accessed
	reqZcopy                         // a put of which a part was posted by zcopy: a transport reads the buffer
	reqUnfenced                      // fences no longer block it
	reqOnDone                        // Progress must call onDone: the caller has the request
	reqSpans                         // its duration is measured or traced
	reqWakes                         // a goroutine of a SharedWorker sleeps until it is complete
	reqLaneLost                      // a lane of the EP has broken since the request was made or last posted
	reqNoKey                         // the remaining lane has no key for the memory of the message
	reqEnd                           // the bit after the last flag
)

// reqFree are the flags of a request in the pool.
const reqFree = placeFree | reqDone

// place returns the place of the request.
func (r *Request) place() reqFlags { return r.flags & reqPlace }

// moveTo sets the place of the request.
func (r *Request) moveTo(to reqFlags) { r.flags = r.flags&^reqPlace | to }

// awaits reports whether the request is in EP.awaited.
func (r *Request) awaits() bool { return r.flags&placeAwaited != 0 }

// requestPool is the requests of a worker.
type requestPool struct {
	free     *Request
	receives *Request               // free requests that have a recv
	made     int                    // number of requests, in use or free
	remote   handle.Table[*Request] // requests with an id; a peer knows only the ids of requests to it
}

// chunk is the number of requests by which the pool grows.
const chunk = 32

// newRequest returns a request from the pool.
func (w *Worker) newRequest(e *EP, s *stage) *Request {
	r := w.newDirect()
	r.ep, r.stage, r.flags = e, s, 0
	return r
}

// newDirect is newRequest for an operation that is posted in one call. The caller sets EP
// and stage.
func (w *Worker) newDirect() *Request {
	r := w.pool.free
	if r == nil {
		r = w.growPool()
	}
	w.pool.free = r.next
	return r
}

//go:noinline
func (w *Worker) growPool() *Request {
	block := make([]Request, chunk)
	w.pool.made += chunk
	for i := range block {
		r := &block[i]
		r.worker = w
		r.flags = reqFree
		r.comp.Count = 1
		r.comp.Func = completed
		r.pend.Func = func(*uct.PendingReq) error { return r.dispatched() }
		r.next = w.pool.free
		w.pool.free = r
	}
	return w.pool.free
}

// recycle resets a request without references and returns it to the pool.
func (w *Worker) recycle(r *Request) {
	c := r.stage.class
	if c != nil && c.free != nil {
		c.free(r)
	}
	r.ep, r.parent, r.mem = nil, nil, nil
	r.buf, r.iov[0], r.onDone = nil, uct.IOV{}, nil
	r.prev = nil
	r.lane, r.remote = 0, 0
	r.status, r.comp.Status = ucs.StatusOK, ucs.StatusOK
	if c != nil && c.recycle != nil {
		c.recycle(r)
		return
	}
	w.recycleDirect(r)
}

// recycleReceived is recycle for a receive with the flags recvDone. Receives have their own pool,
// so that fields that are equal in all receives need not be set for each.
func (w *Worker) recycleReceived(r *Request) {
	r.flags = reqFree
	r.next, w.pool.receives = w.pool.receives, r
}

// recycleDirect is recycle for a request that was posted in one call without zcopy, and succeeded.
// The request refers to its EP until it is used again.
func (w *Worker) recycleDirect(r *Request) {
	r.old.result, r.off = nil, 0
	r.comp.Count = 1
	r.flags = reqFree
	r.next, w.pool.free = w.pool.free, r
}

// errReleased is the error of a request that was released.
var errReleased = fmt.Errorf("ucp: request: %w: it was released already", ucs.ErrInvalidParam)

// Done reports whether the operation is complete. It makes no progress.
func (r *Request) Done() bool { return r == nil || r.flags&reqDone != 0 }

// Status is StatusInProgress, or the result of the operation.
func (r *Request) Status() ucs.Status {
	switch {
	case r == nil:
		return ucs.StatusOK
	case r.place() == placeFree:
		return ucs.StatusInvalidParam
	case r.flags&reqDone == 0:
		return ucs.StatusInProgress
	}
	return r.status
}

// Test makes progress and reports whether the operation is complete; if so, err is its
// result, and the request is released.
func (r *Request) Test() (done bool, err error) {
	if r == nil {
		return true, nil
	}
	if r.flags&reqDone == 0 {
		r.worker.Progress()
		if !r.Done() {
			return false, nil
		}
	}
	if r.flags != directDone || r.status != ucs.StatusOK {
		return true, r.take()
	}
	r.worker.recycleDirect(r)
	return true, nil
}

// directDone are the flags of a request that was posted in one call and is complete.
const directDone = reqPosted | placeDirect | reqDone

// recvDone are the flags of a receive that its message has completed, without callbacks or other flags.
const recvDone = placeDirect | reqDone

// take returns the result of a complete request and releases it.
func (r *Request) take() error {
	if r.flags == directDone && r.status == ucs.StatusOK {
		r.worker.recycleDirect(r)
		return nil
	}
	if r.flags == recvDone {
		r.worker.recycleReceived(r)
		return nil
	}
	if r.place() == placeFree {
		return errReleased
	}
	err := r.err()
	r.Release()
	return err
}

// Release releases the request, now or when the operation is complete. The
// operation continues, and its buffer belongs to gucx until EP.Flush or EP.Close is complete.
func (r *Request) Release() {
	if r == nil {
		return
	}
	if r.flags == directDone && r.status == ucs.StatusOK {
		r.worker.recycleDirect(r)
		return
	}
	if r.flags == recvDone {
		r.worker.recycleReceived(r)
		return
	}
	if r.place() == placeFree {
		invariants.Assert(false, "a request was released twice")
		return
	}
	r.flags |= reqReleased
	r.collect()
}

// Cancel completes an operation of which nothing was posted yet with StatusCanceled and
// reports whether it did. An operation that a transport has begun cannot be
// canceled, nor can a flush or a close. If the operation is a rendezvous message that the peer has not received,
// Cancel requests the peer to drop it and returns false; the buffer still belongs to gucx, and the
// request completes with the reply of the peer: with ErrCanceled, unless a receive matched first.
func (r *Request) Cancel() bool {
	if r.Done() {
		return false
	}
	c := r.stage.class
	if c != nil && c.requestDrop != nil && c.requestDrop(r) {
		return false
	}
	if r.stage.tryCancel == nil || !r.stage.tryCancel(r) {
		return false
	}
	e, inOrder := r.ep, r.stage.inOrder
	if r.flags&reqWaiting != 0 {
		e.dequeueWaiting(r)
	}
	if c != nil && c.canceled != nil {
		c.canceled(r)
	}
	r.complete(ucs.StatusCanceled)
	if inOrder && e.waiting.messages() > 0 {
		e.replayMessages() // later messages waited for it
	}
	return true
}

// stopped returns the reason to post no further part of the request; StatusOK if there is none.
func (r *Request) stopped() ucs.Status {
	if st := r.ep.closing.aborting; st != ucs.StatusOK {
		return st
	}
	if r.flags&reqGivenUp != 0 {
		return ucs.StatusCanceled
	}
	return ucs.StatusOK
}

// bufferInUse reports whether a transport accesses the caller's buffer: the buffer of a get
// while any part is in flight, and that of a put without a copy.
func (r *Request) bufferInUse() bool {
	if c := r.stage.class; c != nil && c.bufferInUse != nil {
		return c.bufferInUse(r)
	}
	under := r.comp.Count
	if r.flags&reqUnposted != 0 { // a part is not posted yet
		under--
	}
	return (r.stage.usesBuffer || r.flags&reqZcopy != 0) && r.flags&reqDone == 0 && under > 0
}

// collect recycles a request that is complete, released, and in no queue.
func (r *Request) collect() {
	const held = reqQueued | reqWaiting | placeListed | placeAwaited // bits that placeDirect does not have
	if r.flags&(reqDone|reqReleased) == reqDone|reqReleased && r.flags&held == 0 {
		r.worker.recycle(r)
	}
}

// fail stores the reason of a failure. The request completes when its posted parts have completed.
func (r *Request) fail(st ucs.Status) {
	if r.comp.Status == ucs.StatusOK {
		r.comp.Status = st
	}
}

// started returns the result of a call that starts an operation: nothing if it is
// complete, its error if it has failed, otherwise the request.
func (r *Request) started() (*Request, error) {
	if r.flags&reqDone == 0 {
		r.armOnDone()
		return r, nil
	}
	return nil, r.take()
}

// markPending returns the request of an operation that was posted in one call and
// is in flight. It is in no list of its EP, which counts it.
func (r *Request) markPending() *Request {
	r.flags = reqPosted | placeDirect
	r.ep.counts.direct++
	return r
}

// recycleCompleted recycles the request of an operation that was complete when its only
// post returned: nothing refers to the request.
func (r *Request) recycleCompleted() {
	if r.old.result != nil {
		*r.old.result = r.old.word
	}
	r.worker.recycleDirect(r)
}

// markPendingZcopy is markPending for an operation without a copy.
func (r *Request) markPendingZcopy() *Request {
	r.flags = reqPosted | placeDirect | reqZcopy
	r.armOnDone()
	r.ep.counts.direct++
	return r
}

// notPending is markPending for an operation that has completed or was rejected; busy says that
// it must be queued instead. The operation uses the request, which was passed to the transport.
//
//go:noinline
func (r *Request) notPending(err error) (_ *Request, busy bool, _ error) {
	r.flags = reqReleased
	if err == nil {
		r.complete(ucs.StatusOK)
		return nil, false, nil
	}
	e, a := r.ep, r.action()
	r.worker.recycle(r)
	if err == uct.ErrNoResource || e.canReroute(a.stage, err) {
		return nil, true, nil
	}
	return nil, false, e.refused(a, err)
}

// completed runs when all posted parts are complete.
func completed(c *uct.Completion) {
	r := requestOf(c)
	e := r.ep
	if r.flags&^reqZcopy != reqPosted|placeDirect || r.comp.Status != ucs.StatusOK || e.retainedIfaces != nil || e.closing.ending {
		r.ended()
		return
	}
	e.counts.direct--
	r.flags |= reqDone
	if r.old.result != nil {
		*r.old.result = r.old.word
	}
}

// ended is completed for a request that was not posted in one call, has failed, was
// released or abandoned, or for which the EP may wait.
//
//go:noinline
func (r *Request) ended() {
	switch e := r.ep; {
	case r.flags&^reqZcopy == reqPosted|placeDirect|reqReleased && r.comp.Status == ucs.StatusOK && e.retainedIfaces == nil && !e.closing.ending:
		r.recycleReleased()
	case r.place() == placeDirect:
		e.counts.direct--
		r.complete(r.comp.Status)
		e.onIdle()
	case r.stage.done != nil:
		r.stage.done(r)
	default:
		r.complete(r.comp.Status)
	}
}

// recycleReleased recycles a request that was posted in one call, has succeeded and was released before it was
// complete.
func (r *Request) recycleReleased() {
	r.ep.counts.direct--
	if r.old.result != nil {
		*r.old.result = r.old.word
	}
	if r.flags&reqZcopy != 0 {
		r.worker.recycle(r)
		return
	}
	r.worker.recycleDirect(r)
}

// OpParams are optional parameters of an operation; nil means none.
type OpParams struct {
	// Mem is registered memory that contains the local buffer. Transfers then move the buffer without a copy
	// if that is faster, and it belongs to gucx until the request is complete. Without Mem
	// transfers are copied, or the buffer is registered if that is faster: see the package
	// documentation, "Registration of buffers".
	//
	// A large message, and a receive of one, sends the key of Mem to the peer, which then has the
	// access rights of Mem in all of it until Mem is closed. Without the right of remote
	// reads the peer does not use gets, and without the right of remote writes no puts.
	Mem *Mem

	// OnDone is called once, from Progress, when an operation that has returned a request completes,
	// with the error that Wait returns. It is not called for an operation that returned no
	// request, nor for one that never has a request (PutImplicit). It may start operations and
	// close EPs, and must not call Progress. The caller must still release the request, unless it
	// has done so.
	OnDone func(err error)

	// Flags change how the operation is done; 0 leaves the choice to gucx. The blocking forms permit all but
	// CompleteLater, which does nothing there.
	Flags OpFlags
}

// onDone is OnDone of params that may be nil.
func (p *OpParams) onDone() func(error) {
	if p == nil {
		return nil
	}
	return p.OnDone
}
