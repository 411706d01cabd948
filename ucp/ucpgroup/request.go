package ucpgroup

import (
	"context"
	"errors"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// Request is an operation that was not complete when its call returned, or a receive. It is
// pooled: Wait, and Test when it returns done, release it, and it must not be used after
// that. A nil Request is complete without error; all methods accept it.
type Request struct {
	g    *Group
	c    *Comm
	u    *ucp.Request // of a message; nil if it is complete
	s    *schedule    // of a collective operation
	info ucp.TagInfo  // of a receive
	err  error        // the result, or why it was aborted
	kind requestKind
	peer int32 // rank in the world that it needs, or AnySource

	done       func() bool // finished
	next, prev *Request    // in Group.pending; next in Group.free too
	listed     bool
}

// requestKind is the operation of a request.
type requestKind uint8

const (
	kindSend requestKind = iota
	kindRecv
	kindCollective
	kindFree // in the pool
)

// String names the operation.
func (k requestKind) String() string {
	return [...]string{"send", "receive", "collective operation", "free request"}[k]
}

// requestChunk is the number of requests by which the pool grows.
const requestChunk = 32

// newRequest returns a request from the pool.
func (g *Group) newRequest(c *Comm, kind requestKind, peer int) *Request {
	if g.free == nil {
		g.growPool()
	}
	r := g.free
	g.free, r.next = r.next, nil
	r.c, r.kind, r.peer = c, kind, int32(peer)
	return r
}

//go:noinline
func (g *Group) growPool() {
	block := make([]Request, requestChunk)
	for i := range block {
		r := &block[i]
		r.g, r.kind, r.done = g, kindFree, r.finished
		r.next, g.free = g.free, r
	}
}

// recycle puts a request back into the pool.
func (g *Group) recycle(r *Request) {
	if r.listed {
		g.pending.remove(r)
	}
	r.c, r.u, r.s, r.err, r.info.From = nil, nil, nil, nil, nil
	r.kind = kindFree
	r.next, g.free = g.free, r
}

// track adds r to the pending requests. u is its operation of package ucp in flight.
func (r *Request) track(u *ucp.Request) {
	r.u = u
	r.g.pending.add(r)
}

// Done reports whether the operation is complete. It makes no progress.
func (r *Request) Done() bool {
	switch {
	case r == nil:
		return true
	case r.s != nil:
		return r.s.ended
	}
	return r.u == nil || r.u.Done()
}

// finished is Done for a waiter, which makes progress for all operations of the group.
func (r *Request) finished() bool {
	r.g.step()
	return r.Done()
}

// Test makes progress and reports whether the operation is complete; if so, it returns st and err
// and releases the request. It does not block and reads no clock.
func (r *Request) Test() (done bool, st Status, err error) {
	if !r.Done() {
		if r.g.Progress(); !r.Done() {
			return false, Status{}, nil
		}
	}
	st, err = r.take()
	return true, st, err
}

// Wait makes progress until the operation is complete, returns its result and releases the
// request. If ctx is done first, Wait returns its error and the request is still in flight: wait again, or Cancel
// it. Errors: ErrTruncated, with the length of the message in the status; ErrCanceled;
// a [RankError] if a rank that the operation needs is gone; ErrClosed if the worker is closed.
func (r *Request) Wait(ctx context.Context) (Status, error) {
	if !r.Done() {
		if err := r.g.w.Until(ctx, r.done); err != nil {
			return Status{}, err
		}
	}
	return r.take()
}

// take returns the result of a complete request and releases it.
func (r *Request) take() (st Status, err error) {
	if r == nil {
		return Status{}, nil
	}
	if invariants.Enabled {
		invariants.Assert(r.kind != kindFree, "a request of a group was used after it was given back")
	}
	g, c, kind := r.g, r.c, r.kind
	switch {
	case r.s != nil:
		if err = r.s.err; err != nil {
			g.step() // notify the others
		}
		r.s.recycle()
	case r.u != nil:
		err = r.takeMessage()
	default:
		err = r.err
	}
	if kind == kindRecv && (err == nil || errors.Is(err, ucs.ErrTruncated)) {
		if st = c.statusOf(r.info.Tag, r.info.Length); st.Source >= 0 {
			c.peer(st.Source).used = true
		} else {
			st, err = Status{}, c.failForeign("receive", r.info.Tag)
		}
	}
	g.recycle(r)
	return st, err
}

// takeMessage returns the result of the request of a message.
func (r *Request) takeMessage() error {
	_, err := r.u.Test()
	if err == nil {
		return nil
	}
	return r.failure(err)
}

// failure is the error of an operation of which package ucp returned err.
func (r *Request) failure(err error) error {
	g, op := r.g, r.kind.String()
	g.findLost(err)
	switch {
	case r.err != nil:
		err = r.err
	case r.peer != AnySource && g.peers[r.peer].gone != nil:
		err = g.peers[r.peer].gone
	case g.failed != nil && errors.Is(err, ucs.ErrEPFailed):
		err = g.failed
	}
	return opError(op, err)
}

// Cancel cancels a receive without a message, or a send of which nothing was
// posted, and reports whether it did. The request completes with ErrCanceled; Wait or Test must still release it.
// Collective operations cannot be canceled.
func (r *Request) Cancel() bool {
	if r.Done() || r.s != nil {
		return false
	}
	return r.u.Cancel()
}

// giveUp aborts the request of a blocking call whose context is done. The buffer then belongs to the
// caller.
func (r *Request) giveUp() {
	if r.u != nil {
		r.u.GiveUp()
	}
	r.g.recycle(r)
}

// whyImpossible returns the reason why the request cannot succeed any more; nil if it can.
func (r *Request) whyImpossible() error {
	g := r.g
	switch {
	case g.failed != nil:
		return g.failed
	case r.kind != kindRecv:
		return nil // the request completes when its endpoint fails
	case r.peer != AnySource:
		return g.peers[r.peer].gone
	}
	return r.c.allGone()
}

// abort fails a request that cannot succeed. Operations of it that a transport has in flight complete with the
// endpoint.
func (r *Request) abort(err error) {
	if r.u.Done() || r.err != nil {
		return
	}
	r.err = err
	if r.u.Cancel() || r.g.failed == nil {
		return
	}
	if r.peer != AnySource {
		r.g.scheduleClose(int(r.peer))
		return
	}
	for q := range r.g.peers {
		r.g.scheduleClose(q)
	}
}

// cancelAll aborts all requests when the group closes.
func (g *Group) cancelAll() {
	for r := g.pending.first; r != nil; r = r.next {
		if !r.u.Done() && r.err == nil {
			r.err = ucs.ErrCanceled
			r.u.Cancel()
		}
	}
	g.abortSchedules()
}

// requestList is a list of requests.
type requestList struct{ first, last *Request }

func (l *requestList) add(r *Request) {
	r.listed, r.prev, r.next = true, l.last, nil
	if l.last != nil {
		l.last.next = r
	} else {
		l.first = r
	}
	l.last = r
}

func (l *requestList) remove(r *Request) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		l.last = r.prev
	}
	r.listed, r.prev, r.next = false, nil, nil
}

// WaitAll makes progress until all requests are complete, and releases them. It returns the error
// of the first request in the list that failed. If ctx is done first, WaitAll returns its error;
// reqs then contains the requests that are still in flight, and nil for the others.
func WaitAll(ctx context.Context, reqs ...*Request) error {
	var first error
	for i, r := range reqs {
		if !r.Done() {
			if err := r.g.w.Until(ctx, r.done); err != nil {
				return err
			}
		}
		_, err := r.take()
		reqs[i] = nil
		if first == nil {
			first = err
		}
	}
	return first
}

// WaitAny makes progress until one of the requests is complete, releases it and returns
// its index. nil requests are skipped. The index is -1 if there is no other request,
// or if ctx is done first; WaitAny then returns its error.
func WaitAny(ctx context.Context, reqs ...*Request) (int, Status, error) {
	var g *Group
	for _, r := range reqs {
		if r != nil {
			g = r.g
		}
	}
	if g == nil {
		return -1, Status{}, opError("wait for any", ucs.ErrInvalidParam)
	}
	found := -1
	err := g.w.Until(ctx, func() bool {
		g.step()
		for i, r := range reqs {
			if r != nil && r.Done() {
				found = i
				return true
			}
		}
		return false
	})
	if err != nil {
		return -1, Status{}, err
	}
	st, err := reqs[found].take()
	reqs[found] = nil
	return found, st, err
}
