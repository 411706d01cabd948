package overlap

import (
	"time"

	"github.com/gucx/gucx/ucp"
)

// Node is one of two sides, with a clock of its own.
type Node interface {
	Worker() *ucp.Worker
	// TagSend sends to the other side.
	TagSend(tag uint64, buf []byte, p *ucp.OpParams) (*ucp.Request, error)
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
	data []byte
	p    *ucp.OpParams
	next *ucp.Request // receive of the other side's next word that it is ready
}

func (x Exchange) join(n Node, m Memory) *party {
	return &party{Exchange: x, n: n, data: m.Buf[:x.Size], p: &ucp.OpParams{Mem: m.Mem}}
}

// sends reports whether the party sends, which waits for the other to be ready.
func (x Exchange) sends(measured bool) bool { return measured != (x.Side == Irecv) }

// Measure is the side that is measured: it returns the time of an iteration.
func (x Exchange) Measure(n Node, m Memory) (time.Duration, error) {
	y := x.join(n, m)
	step := y.receive
	if x.sends(true) {
		step = y.send
	}
	var begin time.Duration
	for i := range x.Warmup + x.Iterations {
		if i == x.Warmup {
			begin = n.Now()
		}
		if err := step(x.Work, i == x.Warmup+x.Iterations-1); err != nil {
			return 0, err
		}
	}
	return (n.Now() - begin) / time.Duration(x.Iterations), nil
}

// Serve is the other side.
func (x Exchange) Serve(n Node, m Memory) error {
	y := x.join(n, m)
	step, work := y.receive, time.Duration(0)
	if x.sends(false) {
		step = y.send
	}
	if x.Side == Both {
		work = x.Work
	}
	for i := range x.Warmup + x.Iterations {
		if err := step(work, i == x.Warmup+x.Iterations-1); err != nil {
			return err
		}
	}
	return nil
}

// send is an iteration that sends, when the other side is ready. The receive of its next word
// is posted before the work.
func (y *party) send(work time.Duration, last bool) error {
	if y.next == nil {
		if err := y.expect(); err != nil {
			return err
		}
	}
	if err := y.n.Wait(y.next); err != nil {
		return err
	}
	y.next = nil
	if !last {
		if err := y.expect(); err != nil {
			return err
		}
	}
	q, err := y.n.TagSend(dataTag, y.data, y.p)
	if err != nil {
		return err
	}
	y.n.Compute(work)
	return y.n.Wait(q)
}

// expect posts the receive of the other side's word that it is ready.
func (y *party) expect() (err error) {
	y.next, err = y.n.Worker().TagRecv(nil, readyTag, fullMask, nil, nil)
	return err
}

// receive is an iteration that receives.
func (y *party) receive(work time.Duration, _ bool) error {
	q, err := y.n.Worker().TagRecv(y.data, dataTag, fullMask, nil, y.p)
	if err != nil {
		return err
	}
	ready, err := y.n.TagSend(readyTag, nil, nil)
	if err != nil {
		return err
	}
	y.n.Compute(work)
	if err := y.n.Wait(ready); err != nil {
		return err
	}
	return y.n.Wait(q)
}
