package instr

import (
	"errors"
	"runtime"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/verbslayer"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// verbsRig counts verbs calls on an RC QP in a thread domain, with a single-threaded CQ: no locks, as in uct/ib/rc.
type verbsRig struct {
	*pair[*verbslayer.Conn]
	cq     *verbs.CQ // of the near side, as recvCQ
	recvCQ *verbs.CQ
	op     layer.Op // of the case
	wc     [verbsBatch]verbs.WC
	found  int // completions of the counted poll
}

const (
	// verbsBatch is the maximum number of completions of one poll.
	verbsBatch = 16
	// windowSignals is the number of signaled work requests of a window: every 65th, as in the layer, and the last.
	windowSignals = windowLen/65 + 1
)

func openVerbs(fabric, _ string) (rig, error) {
	p, err := openPair[*verbslayer.Conn](ofDefaults(verbslayer.Name), fabric, transports[0])
	if err != nil {
		return nil, err
	}
	return &verbsRig{pair: p, cq: p.near.CQ(), recvCQ: p.near.RecvCQ()}, nil
}

// steps implements rig. All work requests except those of windows are signaled, as in uct/ib/rc on an idle endpoint.
// The rig makes the counted polls itself: CQ.Poll is inlined, so polls of the layer would have other instructions.
func (r *verbsRig) steps(c Case) (steps, error) {
	switch c.Op {
	case Idle, PollTx:
		return steps{op: func() error { return want(r.cq.Poll(r.wc[:]), 0) }}, nil
	case PollRx:
		return steps{op: func() error { return want(r.recvCQ.Poll(r.wc[:]), 0) }}, nil
	}
	op, err := r.opOf(c, layer.Auto)
	if err != nil {
		return steps{}, err
	}
	r.op = op
	verify := func() error { return r.compare(c.Size) }
	switch c.Op {
	case Put, PutZcopy, Get, GetZcopy:
		return steps{before: r.change, op: op.Post, after: inTurn(op.Flush, verify)}, nil
	case Add, FAdd:
		return steps{op: op.Post, after: op.Flush}, nil
	case Flush:
		return steps{before: op.Post, op: r.complete, after: inTurn(r.account, op.Flush)}, nil
	case PutWindow, GetWindow:
		return steps{before: r.change, op: r.window, after: inTurn(r.account, op.Flush, verify)}, nil
	case FAddWindow:
		return steps{op: r.window, after: inTurn(r.account, op.Flush)}, nil
	}
	return steps{before: op.Post, op: r.pollOne, after: inTurn(r.account, op.Flush)}, nil // Busy
}

// complete polls until a completion has arrived.
func (r *verbsRig) complete() error {
	for range polls {
		if r.found = r.cq.Poll(r.wc[:]); r.found != 0 {
			return r.wc[0].Status.Err()
		}
		runtime.Gosched()
	}
	return errStuck
}

// window posts a window of operations, and polls until it is complete.
func (r *verbsRig) window() error {
	for range windowLen {
		if err := r.op.Post(); err != nil {
			return err
		}
	}
	left := windowSignals
	for range polls {
		n := r.cq.Poll(r.wc[:])
		if left -= n; left == 0 {
			r.found = n
			return r.wc[0].Status.Err()
		}
		runtime.Gosched()
	}
	return errStuck
}

func (r *verbsRig) pollOne() error {
	r.found = r.cq.Poll(r.wc[:])
	return want(r.found, 1)
}

// account passes the completions of the counted poll to the layer.
func (r *verbsRig) account() error {
	switch {
	case r.found < 0:
		return errors.New("completion queue overrun")
	case r.found == 0:
		return nil
	}
	return r.near.Complete(r.wc[:r.found])
}
