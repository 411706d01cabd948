package instr

import (
	"runtime"

	"github.com/gucx/gucx/perftest/internal/layers/averbslayer"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
)

// averbsRig counts instructions of the layer averbs: posts and polls of mlx5 queues. All work
// requests except those of windows are signaled, as in verbsRig.
type averbsRig struct {
	*pair[*averbslayer.Conn]
}

func openAVerbs(fabric, _ string) (rig, error) {
	p, err := openPair[*averbslayer.Conn](ofDefaults(averbslayer.Name), fabric, transports[0])
	if err != nil {
		return nil, err
	}
	return averbsRig{p}, nil
}

// steps implements rig.
func (r averbsRig) steps(c Case) (steps, error) {
	switch c.Op {
	case Idle, PollTx:
		return steps{op: func() error { return pollFor(r.near.Poll, 0) }}, nil
	case PollRx:
		return steps{op: func() error { return pollFor(r.near.PollReceives, 0) }}, nil
	}
	op, err := r.opOf(c, layer.Auto)
	if err != nil {
		return steps{}, err
	}
	verify := func() error { return r.compare(c.Size) }
	switch c.Op {
	case Put, PutZcopy, Get, GetZcopy:
		return steps{before: r.change, op: op.Post, after: inTurn(op.Flush, verify)}, nil
	case Add, FAdd:
		return steps{op: op.Post, after: op.Flush}, nil
	case Flush:
		return steps{before: op.Post, op: r.complete}, nil
	case PutWindow, GetWindow:
		return steps{before: r.change, op: window(op), after: verify}, nil
	case FAddWindow:
		return steps{op: window(op)}, nil
	}
	return steps{before: op.Post, op: func() error { return pollFor(r.near.Poll, 1) }, after: op.Flush}, nil // Busy
}

// complete polls until all posted work requests are complete.
func (r averbsRig) complete() error {
	for range polls {
		if _, err := r.near.Poll(); err != nil || r.near.Outstanding() == 0 {
			return err
		}
		runtime.Gosched()
	}
	return errStuck
}

// pollFor polls once, and expects n completions.
func pollFor(poll func() (int, error), n int) error {
	got, err := poll()
	if err != nil {
		return err
	}
	return want(got, n)
}
