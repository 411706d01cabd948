package uct

import "github.com/gucx/gucx/ucs"

// Completion is told when operations end. The caller owns it, usually inside a
// pooled request, and must keep it until Func has run.
//
// Count operations may share one Completion: set Count to their number before
// posting; each that ends, now or later, is counted by [Completion.Complete].
// The transport calls Complete for operations that returned pending=true, once
// each and never before the posting call has returned; for others (done at once,
// or refused) the caller accounts, by Complete or by lowering Count.
//
// Reuse it once Func has been called: Func itself may set Count and post again.
type Completion struct {
	// Func runs when Count reaches 0, from Progress of the iface or from Close of
	// the EP or iface, possibly after the EP has been closed. What it may do: see
	// the package, "Calls from inside".
	Func func(*Completion)
	// Count is the number of operations still to end.
	Count int
	// Status is ucs.StatusOK or the first failure.
	Status Status
}

// Complete counts one operation that ended with st; the one that brings Count to
// 0 runs Func. The first failure stays in Status.
func (c *Completion) Complete(st Status) {
	if st != ucs.StatusOK && c.Status == ucs.StatusOK {
		c.Status = st
	}
	c.Count--
	if c.Count == 0 {
		c.Func(c)
	}
}

// Packer fills transport buffers for AMBcopy. Implement it on a pooled
// pointer type: a closure behind an interface allocates.
type Packer interface {
	// Pack writes the message into dst and returns its length (0..len(dst)).
	Pack(dst []byte) int
}

// PendingReq is a request that waits for resources; see EP.AddPending. The caller
// owns it and keeps it reachable and unmoved while it is queued, on one EP at a
// time.
type PendingReq struct {
	// Func tries again. It is not queued while Func runs, and what Func posts on
	// its EP is not held back by the requests behind it. nil: done, the request
	// leaves the queue (it may have queued itself again, anywhere).
	// ErrNoResource: it stays first and is called when resources return; not
	// after queueing itself or closing its EP. Only new events make the iface
	// dispatch again: a completion, an arrival, or resources that are given back; a
	// Func that refuses for reasons of its own is not called before. Other errors
	// count as done; Func deals with them. What else it may do: see the package, "Calls
	// from inside".
	Func func(*PendingReq) error

	// Next links the queue that holds the request; only that queue touches it.
	// It is nil iff the request is not queued.
	Next *PendingReq
}
