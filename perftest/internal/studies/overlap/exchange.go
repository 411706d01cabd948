package overlap

import (
	"time"

	"github.com/gucx/gucx/ucp"
)

// Node is one of two sides, with a clock of its own.
type Node interface {
	Worker() *ucp.Worker
	Peer() (*ucp.EP, error)
	// Wait makes progress until a request has ended, and gives it back; nil has ended.
	Wait(*ucp.Request) error
	// Compute works for a time, without progress.
	Compute(time.Duration)
	Now() time.Duration
}

// Exchange is a number of messages from one node to the other.
type Exchange struct {
	Side       Side
	Size       int
	Work       time.Duration
	Iterations int
	Warmup     int // iterations before those that count
}

// Tags.
const (
	dataTag uint64 = 1 + iota
	readyTag
)

const fullMask = ^uint64(0)

// Memory is a buffer of a node, which is registered.
type Memory struct {
	Buf []byte
	Mem *ucp.Mem
}

// party is a node in an exchange.
type party struct {
	Exchange
	n    Node
	to   *ucp.EP
	data []byte
	p    *ucp.OpParams
}

func (x Exchange) join(n Node, m Memory) (*party, error) {
	to, err := n.Peer()
	return &party{x, n, to, m.Buf[:x.Size], &ucp.OpParams{Mem: m.Mem}}, err
}

// Measure is the side that is measured: it returns the time of an iteration.
func (x Exchange) Measure(n Node, m Memory) (time.Duration, error) {
	y, err := x.join(n, m)
	if err != nil {
		return 0, err
	}
	step := y.send
	if x.Side == Irecv {
		step = y.receive
	}
	var begin time.Duration
	for i := range x.Warmup + x.Iterations {
		if i == x.Warmup {
			begin = n.Now()
		}
		if err := step(x.Work); err != nil {
			return 0, err
		}
	}
	return (n.Now() - begin) / time.Duration(x.Iterations), nil
}

// Serve is the other side.
func (x Exchange) Serve(n Node, m Memory) error {
	y, err := x.join(n, m)
	if err != nil {
		return err
	}
	step, work := y.receive, time.Duration(0)
	switch x.Side {
	case Irecv:
		step = y.send
	case Both:
		work = x.Work
	}
	for range x.Warmup + x.Iterations {
		if err := step(work); err != nil {
			return err
		}
	}
	return nil
}

// send is an iteration that sends, when the other side is ready.
func (y *party) send(work time.Duration) error {
	ready, err := y.n.Worker().TagRecv(nil, readyTag, fullMask, nil, nil)
	if err != nil {
		return err
	}
	if err := y.n.Wait(ready); err != nil {
		return err
	}
	q, err := y.to.TagSend(dataTag, y.data, y.p)
	if err != nil {
		return err
	}
	y.n.Compute(work)
	return y.n.Wait(q)
}

// receive is an iteration that receives.
func (y *party) receive(work time.Duration) error {
	q, err := y.n.Worker().TagRecv(y.data, dataTag, fullMask, nil, y.p)
	if err != nil {
		return err
	}
	ready, err := y.to.TagSend(readyTag, nil, nil)
	if err != nil {
		return err
	}
	y.n.Compute(work)
	if err := y.n.Wait(ready); err != nil {
		return err
	}
	return y.n.Wait(q)
}
