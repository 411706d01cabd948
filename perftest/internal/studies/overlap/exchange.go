package overlap

import (
	"time"

	"github.com/gucx/gucx/ucp"
)

// Node is one of two sides, with a clock of its own.
type Node interface {
	Worker() *ucp.Worker
	// EP returns the endpoint to the other side.
	EP() (*ucp.EP, error)
	// Gate returns the node's part of barriers.
	Gate() *gate
	// TagSend sends to the other side.
	TagSend(tag uint64, buf []byte, p *ucp.OpParams) (*ucp.Request, error)
	// Wait makes progress until a request is complete, and releases it; nil is complete.
	Wait(*ucp.Request) error
	// Until makes progress until done returns true.
	Until(done func() bool) error
	// Compute computes for a time, without progress.
	Compute(time.Duration)
	Now() time.Duration
}

// Exchange describes the iterations of two nodes.
type Exchange struct {
	Side       Side
	Size       int
	Work       time.Duration
	Iterations int
	Warmup     int  // iterations before the timed ones
	NoMessage  bool // only barriers and work
}

// A receive accepts only the tag of messages.
const (
	dataTag  uint64 = 1
	fullMask        = ^uint64(0)
)

// Memory is a registered buffer of a node.
type Memory struct {
	Buf []byte
	Mem *ucp.Mem
}

// party is a node in an exchange.
type party struct {
	n        Node
	measured bool
	work     time.Duration
	data     []byte
	p        *ucp.OpParams
}

// Measure runs the measured side and returns the time of an iteration.
func (x Exchange) Measure(n Node, m Memory) (time.Duration, error) {
	y := party{n: n, measured: true, work: x.Work, data: m.Buf[:x.Size], p: &ucp.OpParams{Mem: m.Mem}}
	step := x.step(&y)
	if err := repeat(x.Warmup, step); err != nil {
		return 0, err
	}
	begin := n.Now()
	if err := repeat(x.Iterations, step); err != nil {
		return 0, err
	}
	return (n.Now() - begin) / time.Duration(x.Iterations), nil
}

// Serve runs the other side, which computes only with Both.
func (x Exchange) Serve(n Node, m Memory) error {
	y := party{n: n, data: m.Buf[:x.Size], p: &ucp.OpParams{Mem: m.Mem}}
	if x.Side == Both {
		y.work = x.Work
	}
	return repeat(x.Warmup+x.Iterations, x.step(&y))
}

// step returns an iteration of a party.
func (x Exchange) step(y *party) func() error {
	switch {
	case x.NoMessage:
		return y.pause
	case y.measured != (x.Side == Irecv):
		return y.send
	}
	return y.receive
}

// repeat calls f n times.
func repeat(n int, step func() error) error {
	for range n {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// send is an iteration that sends: the receive is posted before the barrier.
func (y *party) send() error {
	if err := y.n.Gate().pass(y.n); err != nil {
		return err
	}
	q, err := y.n.TagSend(dataTag, y.data, y.p)
	if err != nil {
		return err
	}
	y.n.Compute(y.work)
	return y.n.Wait(q)
}

// receive is an iteration that receives.
func (y *party) receive() error {
	q, err := y.n.Worker().TagRecv(y.data, dataTag, fullMask, nil, y.p)
	if err != nil {
		return err
	}
	if err := y.n.Gate().pass(y.n); err != nil {
		return err
	}
	y.n.Compute(y.work)
	return y.n.Wait(q)
}

// pause is an iteration without a message.
func (y *party) pause() error {
	if err := y.n.Gate().pass(y.n); err != nil {
		return err
	}
	y.n.Compute(y.work)
	return nil
}
