package ucp

import (
	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Request is an operation that has not ended when the call returned. It is pooled:
// Wait, and Test when it reports done, give it back, and it must not be touched
// after that; Release gives it back at any time. It belongs to the goroutine that
// owns the worker.
type Request struct {
	// comp counts the transport operations that are under way, and one more while
	// some are still to be posted.
	comp   uct.Completion
	pend   uct.PendingReq
	ep     *EP // nil for a request of a worker
	key    *RKey
	worker *Worker
	parent *Request // counts this one as its child

	next, prev *Request // in EP.ops, in the order in which operations were issued

	buf   []byte
	off   int // bytes posted
	raddr uint64
	mem   *Mem
	iov   [1]uct.IOV
	frags *fragment

	value   uint64  // operand of an atomic
	compare uint64  // the other one of compare-and-swap
	expect  uint64  // opLoop: what the word is believed to hold
	word    uint64  // where the transport stores the old value
	result  *uint64 // where the caller wants it

	remote uint64 // name of an atomic that the target executes

	lane   uint8 // the next lane to flush
	kind   opKind
	op     uct.AtomicOp
	size   uint8 // of the atomic; 0 if it is none
	flags  reqFlags
	status ucs.Status
}

// opKind says what a request does.
type opKind uint8

const (
	opPut    opKind = iota
	opGet           // bytes
	opPost          // atomic without result, by the transport
	opFetch         // atomic with result, by the transport
	opLoop          // atomic by compare-and-swap until it succeeds
	opRemote        // atomic by the target, over active messages
	opAnswer        // the target's answer to opRemote
	opFlush         // waits for the operations before it, then flushes the lanes
	opFence         // opFlush, then operations go on that were held back
	opClose         // opFlush, then the end of the EP
	opGroup         // waits for its children
)

// reqFlags are the places where a request is known, and what was asked of it.
type reqFlags uint16

const (
	reqListed   reqFlags = 1 << iota // in EP.ops
	reqQueued                        // in the pending queue of a lane
	reqWaiting                       // in EP.waiting
	reqLoose                         // counted in EP.loose: not all of it is posted
	reqPosted                        // something of it was posted
	reqDone                          // ended; status is final
	reqReleased                      // goes back to the pool when it has ended
	reqDropData                      // the caller has given up: do not touch its buffer
	reqFree                          // in the pool
	reqFlushing                      // all operations before the flush have ended
	reqAhead                         // no fence holds it back any more
	reqWide                          // opLoop: a 4-byte word, swapped in the 8 bytes around it
	reqRead                          // opLoop: the word has been read
)

// flushes reports that the request waits for the operations before it.
func (k opKind) flushes() bool { return k == opFlush || k == opFence || k == opClose }

// chunk is how many requests the pool grows by.
const chunk = 32

// newRequest takes a request from the pool.
func (w *Worker) newRequest(e *EP, kind opKind) *Request {
	r := w.free
	if r == nil {
		r = w.growPool()
	}
	w.free = r.next
	w.inUse++
	r.next = nil
	r.ep, r.kind, r.flags, r.status = e, kind, 0, ucs.StatusOK
	r.comp.Count, r.comp.Status = 1, ucs.StatusOK
	r.off, r.lane, r.size, r.remote = 0, 0, 0, 0
	return r
}

//go:noinline
func (w *Worker) growPool() *Request {
	block := make([]Request, chunk)
	for i := range block {
		r := &block[i]
		r.worker = w
		r.flags = reqFree
		r.comp.Func = func(*uct.Completion) { r.completed() }
		r.pend.Func = func(*uct.PendingReq) error { return r.dispatched() }
		r.next = w.free
		w.free = r
	}
	return w.free
}

// recycle puts a request that nobody refers to back into the pool.
func (w *Worker) recycle(r *Request) {
	r.ep, r.key, r.parent, r.mem, r.result = nil, nil, nil, nil, nil
	r.buf = nil
	r.iov[0] = uct.IOV{}
	r.flags = reqFree
	r.next, r.prev = w.free, nil
	w.free = r
	w.inUse--
}

// Done reports whether the operation has ended. It makes no progress.
func (r *Request) Done() bool { return r.flags&reqDone != 0 }

// Status is StatusInProgress, or how the operation ended.
func (r *Request) Status() ucs.Status {
	if !r.Done() {
		return ucs.StatusInProgress
	}
	return r.status
}

// Test makes progress and reports whether the operation has ended; if so, err says
// how, and the request is given back.
func (r *Request) Test() (done bool, err error) {
	if !r.Done() {
		r.worker.Progress()
	}
	if !r.Done() {
		return false, nil
	}
	err = r.err()
	r.Release()
	return true, err
}

// err is how an ended request ended. A failed EP adds its reason.
func (r *Request) err() error { return r.status.Err() }

// Release gives the request back, now or when the operation has ended. The
// operation goes on and its buffer stays in use until EP.Flush or EP.Close.
func (r *Request) Release() {
	if invariants.Enabled {
		invariants.Assert(r.flags&reqFree == 0, "a request was released twice")
	}
	r.flags |= reqReleased
	r.collect()
}

// Cancel ends an operation of which nothing was posted yet with StatusCanceled and
// reports whether it did. An operation that the transport has begun cannot be
// canceled, nor can a flush or a close.
func (r *Request) Cancel() bool {
	if r.flags&(reqDone|reqPosted) != 0 || r.flags&(reqQueued|reqWaiting) == 0 || r.kind >= opAnswer {
		return false
	}
	if r.flags&reqWaiting != 0 {
		r.ep.dropWaiting(r)
	}
	r.settle(ucs.StatusCanceled)
	return true
}

// collect recycles a request that has ended, was released, and is in no queue.
func (r *Request) collect() {
	const held = reqQueued | reqListed | reqWaiting
	if r.flags&(reqDone|reqReleased) == reqDone|reqReleased && r.flags&held == 0 {
		r.worker.recycle(r)
	}
}

// fail notes why the request cannot go on. It ends when what was posted has.
func (r *Request) fail(st ucs.Status) {
	if r.comp.Status == ucs.StatusOK {
		r.comp.Status = st
	}
}

// posted says that no more will be posted: the request ends with what is under way.
func (r *Request) posted() {
	if r.kind != opLoop && r.kind != opRemote {
		r.tight()
	}
	r.comp.Complete(ucs.StatusOK)
}

// loosen marks a request of which a part is still to be posted, or that takes
// several steps: a fence must wait for it.
func (r *Request) loosen() {
	if r.flags&reqLoose == 0 && r.ep != nil {
		r.flags |= reqLoose
		r.ep.loose++
	}
}

func (r *Request) tight() {
	if r.flags&reqLoose != 0 {
		r.flags &^= reqLoose
		r.ep.loose--
	}
}

// completed runs when everything that was posted has ended.
func (r *Request) completed() {
	if r.kind == opLoop && r.comp.Status == ucs.StatusOK && r.flags&reqDone == 0 {
		r.loopStep()
		return
	}
	if r.kind == opClose {
		r.ep.closeFlushed()
		return
	}
	r.settle(r.comp.Status)
}

// settle ends the request, once.
func (r *Request) settle(st ucs.Status) {
	if r.flags&reqDone != 0 {
		return
	}
	r.tight()
	r.flags |= reqDone
	r.status = st
	if st != ucs.StatusOK && r.ep != nil {
		r.status = r.ep.blame(st)
	}
	if r.result != nil && st == ucs.StatusOK && r.flags&reqDropData == 0 {
		*r.result = r.word
	}
	if r.frags != nil {
		r.freeFragments()
	}
	if r.remote != 0 {
		r.worker.remote.take(r.remote)
	}
	if r.flags&reqListed != 0 {
		r.ep.unlist(r)
	}
	if r.kind == opFence {
		r.ep.unfence(r)
	}
	if p := r.parent; p != nil {
		r.parent = nil
		p.comp.Complete(r.status)
	}
	r.collect()
}

// started returns what an operation gives to its caller: nothing if it has ended
// well, its error if it has ended otherwise, or the request.
func (r *Request) started() (*Request, error) {
	if r.flags&reqDone == 0 {
		return r, nil
	}
	err := r.err()
	r.Release()
	return nil, err
}

// dispatched runs when a lane has resources again.
func (r *Request) dispatched() error {
	r.flags &^= reqQueued
	if r.flags&reqDone != 0 { // canceled meanwhile
		r.collect()
		return nil
	}
	if st := r.ep.aborting; st != ucs.StatusOK {
		r.fail(st)
		r.posted()
		return nil
	}
	if err := r.advance(); err == uct.ErrNoResource {
		r.flags |= reqQueued
		return err
	}
	return nil
}

// fragment is one piece of a get by bcopy.
type fragment struct {
	dst  []byte
	req  *Request
	next *fragment
}

// Unpack stores the piece.
func (f *fragment) Unpack(src []byte) {
	if f.req.flags&reqDropData == 0 {
		copy(f.dst, src)
	}
}

// newFragment takes a fragment from the pool; it goes back when r ends.
func (r *Request) newFragment(dst []byte) *fragment {
	w := r.worker
	f := w.freeFrags
	if f == nil {
		f = &fragment{}
	} else {
		w.freeFrags = f.next
	}
	f.dst, f.req, f.next = dst, r, r.frags
	r.frags = f
	return f
}

func (r *Request) freeFragments() {
	for f := r.frags; f != nil; {
		next := f.next
		f.dst, f.req = nil, nil
		f.next, r.worker.freeFrags = r.worker.freeFrags, f
		f = next
	}
	r.frags = nil
}

// dropFragment gives back the latest fragment, which was not posted.
func (r *Request) dropFragment() {
	f := r.frags
	r.frags = f.next
	f.dst, f.req = nil, nil
	f.next, r.worker.freeFrags = r.worker.freeFrags, f
}
