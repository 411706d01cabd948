package overlap

import (
	"context"
	"errors"
	"net"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/peers/children"
	"github.com/gucx/gucx/perftest/internal/studies/protocol"
)

// Real connects two processes over the shm fabric, in real time. start starts a process that calls
// ServeNode with its end of the connection.
//
// A process replies, in this order: to its job with the address of its worker; to the address of
// the other process with nothing; and to each exchange with its times.
func Real(start children.Start) Opener {
	return func(ctx context.Context, p protocol.Protocol, size int) (_ Pair, err error) {
		r := &realPair{}
		defer func() {
			if err != nil {
				err = errors.Join(err, r.Close())
			}
		}()
		if r.nodes, err = children.Launch(ctx, 2, start, &r.undo); err != nil {
			return nil, err
		}
		addrs, err := children.Query[[]byte](r.nodes, func(i int) any { return job{Protocol: p, Size: size, Measured: i == 0} })
		if err != nil {
			return nil, err
		}
		_, err = children.Query[struct{}](r.nodes, func(i int) any { return addrs[1-i] })
		return r, err
	}
}

// realPair is two processes; the first is measured.
type realPair struct {
	nodes children.List
	undo  cleanup.Stack
}

// Run implements Pair.
func (r *realPair) Run(ctx context.Context, x Exchange) (Times, error) {
	times, err := children.Query[Times](r.nodes, func(int) any { return x })
	if ctx.Err() != nil {
		return Times{}, context.Cause(ctx)
	}
	if err != nil {
		return Times{}, err
	}
	return times[0], nil
}

// Close implements Pair.
func (r *realPair) Close() error { return r.undo.Run() }

// job is the work of a process.
type job struct {
	Protocol protocol.Protocol
	Size     int // of its buffer
	Measured bool
}

// ServeNode is a process of a measurement until conn ends. An error of the measurement is in the
// reply, not returned. It closes conn.
func ServeNode(ctx context.Context, conn net.Conn) (err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	line := children.NewLine(conn)
	ctx = line.Follow(ctx)
	n := &realNode{ctx: ctx}
	defer func() { err = errors.Join(err, n.undo.Run()) }()
	return line.Result(n.serve(line))
}

// serve does the steps of the protocol.
func (n *realNode) serve(line *children.Line) error {
	var j job
	if err := line.Receive(&j); err != nil {
		return err
	}
	if err := line.Reply(n.open(j)); err != nil {
		return err
	}
	var addr []byte
	if err := line.Receive(&addr); err != nil {
		return err
	}
	if err := line.Reply(nil, n.connect(addr)); err != nil {
		return err
	}
	for {
		var x Exchange
		if err := line.Receive(&x); err != nil {
			return err
		}
		if err := line.Reply(n.exchange(x)); err != nil {
			return err
		}
	}
}
