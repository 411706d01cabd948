package threads

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/peers/children"
)

// pairs contains pairs of processes that measure concurrently. The initiators are processes too; each is a pair with
// one thread.
//
// An initiator replies, in this order: to its job when it is connected; and to each part when it has warmed up, and,
// when requested again, with an outcome when the part is over.
type pairs struct {
	initiators children.List
	undo       cleanup.Stack
}

// newPairs starts as many pairs as the job has threads. start starts a process that calls ServeInitiator.
func newPairs(ctx context.Context, j job, start children.Start) (_ *pairs, err error) {
	p := &pairs{}
	defer func() {
		if err != nil {
			_ = p.undo.Run()
		}
	}()
	if p.initiators, err = children.Launch(ctx, j.Threads, start, &p.undo); err != nil {
		return nil, err
	}
	j.Mode, j.Threads = Single, 1
	_, err = children.Query[struct{}](p.initiators, func(int) any { return j })
	return p, err
}

// outcome is the result of an initiator for a part.
type outcome struct {
	Times times
	Wrong string // error of the data
}

// run runs a part in all pairs. The total time is from the first start to the last end.
func (p *pairs) run(part Part) (times, error) {
	if _, err := children.Query[struct{}](p.initiators, func(int) any { return part }); err != nil {
		return times{}, err
	}
	outcomes, err := children.Query[outcome](p.initiators, children.Go)
	if err != nil {
		return times{}, err
	}
	return together(outcomes)
}

// together combines the outcomes of the pairs.
func together(outcomes []outcome) (times, error) {
	all := times{Each: make([]time.Duration, len(outcomes)), Begin: outcomes[0].Times.Begin}
	for i, o := range outcomes {
		if o.Wrong != "" {
			return times{}, fmt.Errorf("%w in pair %d: %s", ErrData, i, o.Wrong)
		}
		all.Each[i] = o.Times.All
		all.Begin, all.End = min(all.Begin, o.Times.Begin), max(all.End, o.Times.End)
	}
	all.All = all.End - all.Begin
	return all, nil
}

// close ends all processes.
func (p *pairs) close() error { return p.undo.Run() }

// ServeInitiator runs the initiator of one pair until conn ends. start starts its target. It closes conn.
func ServeInitiator(ctx context.Context, conn net.Conn, open Open, start children.Start) (err error) {
	defer func() {
		if e := conn.Close(); !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}()
	line := children.NewLine(conn)
	ctx = line.Follow(ctx)
	return line.Result(initiate(ctx, line, open, start))
}

// initiate does the steps of the protocol.
func initiate(ctx context.Context, line *children.Line, open Open, start children.Start) (err error) {
	var j job
	if err := line.Receive(&j); err != nil {
		return err
	}
	p, err := newPair(ctx, j, open, start)
	if err != nil {
		return errors.Join(err, line.Reply(nil, err))
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := line.Reply(nil, nil); err != nil {
		return err
	}
	for {
		if err := p.initiatePart(line); err != nil {
			return err
		}
	}
}

// initiatePart runs one part.
func (p *pair) initiatePart(line *children.Line) error {
	var part Part
	if err := line.Receive(&part); err != nil {
		return err
	}
	defer quiet()()
	t, err := p.runOnce(part, func() error {
		if err := line.Reply(nil, nil); err != nil {
			return err
		}
		return line.Receive(&struct{}{})
	})
	o := outcome{Times: t}
	if errors.Is(err, ErrData) {
		o.Wrong, err = err.Error(), nil
	}
	return line.Reply(o, err)
}
