package uct

import "github.com/gucx/gucx/ucs"

// Completion is called when operations complete. The caller owns it, usually inside a
// pooled request, and must not free or reuse it before Func has run.
//
// Several operations may share one Completion: the caller sets Count to their number before it
// posts them. [Completion.Complete] counts each operation that completes or fails.
// The transport calls Complete once for each operation that returned pending=true, and
// never before the posting call has returned. For other operations (complete at once,
// or rejected) the caller must call Complete or decrement Count.
//
// The caller may reuse a Completion when Func has been called: Func itself may set Count and post again.
type Completion struct {
	// Func runs when Count reaches 0, from Progress of the iface or from Close of
	// the EP or iface, possibly after the EP has been closed. For the calls that it may make see
	// the package documentation, "Calls from callbacks".
	Func func(*Completion)
	// Count is the number of operations that have not completed yet.
	Count int
	// Status is ucs.StatusOK or the first failure.
	Status Status
}

// Complete counts one operation that completed with status st. The call that decrements Count to
// 0 runs Func. Status is that of the first failure.
func (c *Completion) Complete(st Status) {
	if st != ucs.StatusOK && c.Status == ucs.StatusOK {
		c.Status = st
	}
	c.Count--
	if c.Count == 0 {
		c.Func(c)
	}
}

// Packer writes messages to transport buffers for AMBcopy. It should be implemented by a pointer to a pooled
// struct, because a closure behind an interface allocates.
type Packer interface {
	// Pack writes the message into dst and returns its length (0..len(dst)).
	Pack(dst []byte) int
}

// PendingReq is a request that waits for resources; see EP.AddPending. The caller
// owns it. While it is queued it must stay reachable and must not be copied. It is queued on
// one EP at a time.
type PendingReq struct {
	// Func posts again. The request is not queued while Func runs, and Func may post on
	// its EP although other requests are queued. If Func returns nil, the request is
	// done (Func may have queued it again, on any EP). If Func returns ErrNoResource, the
	// request is again the first in the queue, unless Func has queued it itself, and Func is called when resources
	// become free; Progress does not count the call. Func must not return ErrNoResource after it has closed the EP. The
	// iface dispatches requests after a completion, an arrival, or when resources become free; a
	// Func that returns ErrNoResource for another reason waits for one of these events. After any
	// other error the request is done; Func must have handled the error. For other calls that Func may
	// make see the package documentation, "Calls from callbacks".
	Func func(*PendingReq) error

	// Next links the queue of the request; only that queue uses it.
	// It is nil iff the request is not queued.
	Next *PendingReq
}
