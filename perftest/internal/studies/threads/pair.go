package threads

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/peers/children"
)

// pair is the initiator, which is this process, and the target, which is another one.
//
// The target replies, in this order: to its job with its contact; to the contact of the initiator with nothing; and to
// each part with nothing when it is ready, and, when requested again, with the error of the data when the part is over.
type pair struct {
	ctx    context.Context // ends with the target
	node   *node
	target children.List
	undo   cleanup.Stack
}

// newPair starts a target and connects it. start starts a process that calls Serve.
func newPair(ctx context.Context, j job, open Open, start children.Start) (_ *pair, err error) {
	p := &pair{}
	defer func() {
		if err != nil {
			_ = p.undo.Run()
		}
	}()
	if p.node, err = openNode(j, open); err != nil {
		return nil, err
	}
	p.undo.Add(p.node.undo.Run)
	if p.target, err = children.Launch(ctx, 1, start, &p.undo); err != nil {
		return nil, err
	}
	p.ctx = p.target[0].Follow(ctx)
	theirs, err := children.Query[contact](p.target, func(int) any { return j })
	if err != nil {
		return nil, err
	}
	if err := p.node.connect(theirs[0]); err != nil {
		return nil, err
	}
	_, err = children.Query[struct{}](p.target, func(int) any { return p.node.contact() })
	return p, err
}

// run runs a part.
func (p *pair) run(part Part) (times, error) { return p.runOnce(part, func() error { return nil }) }

// runOnce runs a part. The timed windows begin when ready, which is called after the warm-up, has returned.
func (p *pair) runOnce(part Part, ready func() error) (times, error) {
	if err := p.node.begin(part, true); err != nil {
		return times{}, err
	}
	if _, err := children.Query[struct{}](p.target, func(int) any { return part }); err != nil {
		return times{}, err
	}
	t, err := p.node.run(p.ctx, part, ready)
	if err != nil {
		return times{}, p.cause(err)
	}
	wrong, err := p.requestResult()
	if err != nil {
		return times{}, err
	}
	if wrong != "" {
		return times{}, fmt.Errorf("%w at the target: %s", ErrData, wrong)
	}
	return t, p.node.finish(true)
}

// requestResult requests the error of the data from the target.
func (p *pair) requestResult() (string, error) {
	ctx, cancel := context.WithCancel(p.ctx)
	end := p.node.idle(ctx)
	wrong, err := children.Query[string](p.target, children.Go)
	cancel()
	if err = errors.Join(err, end()); err != nil {
		return "", err
	}
	return wrong[0], nil
}

// cause returns the error that has ended a part.
func (p *pair) cause(err error) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return err
}

// close ends the target and closes the resources of this process.
func (p *pair) close() error { return p.undo.Run() }

// Serve runs the target until conn ends. It closes conn.
func Serve(ctx context.Context, conn net.Conn, open Open) (err error) {
	defer func() {
		if e := conn.Close(); !errors.Is(e, net.ErrClosed) { // a failed part closes the connection
			err = errors.Join(err, e)
		}
	}()
	line := children.NewLine(conn)
	ctx = line.Follow(ctx)
	return line.Result(serve(ctx, line, open, func() { _ = conn.Close() }))
}

// serve does the steps of the protocol. hangUp closes the connection if the initiator waits in vain.
func serve(ctx context.Context, line *children.Line, open Open, hangUp func()) (err error) {
	var j job
	if err := line.Receive(&j); err != nil {
		return err
	}
	if j.Threads < 1 || j.Threads > MaxThreads || j.Memory < 1 {
		return line.Reply(nil, fmt.Errorf("%d threads with %d bytes each", j.Threads, j.Memory))
	}
	n, err := openNode(j, open)
	if err != nil {
		return errors.Join(err, line.Reply(nil, err))
	}
	defer func() { err = errors.Join(err, n.undo.Run()) }()
	if err := line.Reply(n.contact(), nil); err != nil {
		return err
	}
	var c contact
	if err := line.Receive(&c); err != nil {
		return err
	}
	if err := line.Reply(nil, n.connect(c)); err != nil {
		return err
	}
	for {
		if err := n.servePart(ctx, line, hangUp); err != nil {
			return err
		}
	}
}

// servePart runs one part. It is over when the initiator has sent the request and all messages have arrived.
func (n *node) servePart(ctx context.Context, line *children.Line, hangUp func()) error {
	var p Part
	if err := line.Receive(&p); err != nil {
		return err
	}
	if err := n.begin(p, false); err != nil {
		return line.Reply(nil, err)
	}
	defer quiet()()
	if err := n.runPartUntilRequest(ctx, line, p, hangUp); err != nil {
		return err
	}
	text := ""
	if wrong := n.finish(false); wrong != nil {
		text = wrong.Error()
	}
	return line.Reply(text, nil)
}

// runPartUntilRequest runs a part, and closes the connection if that fails.
func (n *node) runPartUntilRequest(ctx context.Context, line *children.Line, p Part, hangUp func()) error {
	ctx, cancel := context.WithCancel(ctx)
	done, end := n.serve(ctx, p)
	ended := make(chan error, 1)
	go func() {
		err := end()
		if err != nil {
			hangUp()
		}
		ended <- err
	}()
	err := line.Reply(nil, nil)
	if err == nil {
		err = line.Receive(&struct{}{})
	}
	if err == nil {
		done()
	}
	cancel()
	return errors.Join(err, <-ended)
}
