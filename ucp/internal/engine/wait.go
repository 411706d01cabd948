package engine

import (
	"context"
	"runtime"
)

// YieldPolls is how many idle polls a waiter does between two yields to other
// goroutines: often enough for peers of the same process, seldom enough not to cost
// (a yield is some 100 ns, a poll 5 to 50).
const YieldPolls = 64

// Until makes progress until done reports true. The caller has the turn. It looks at ctx every
// YieldPolls polls, also if each of them finds something.
func (e *Engine) Until(ctx context.Context, done func() bool) (err error) {
	var s IdleTime
	for polls := 1; err == nil && !done(); polls++ {
		if e.Turn.closing() {
			err = ErrClosed
			break
		}
		if polls%YieldPolls == 0 {
			if err = ctx.Err(); err != nil {
				break
			}
		}
		if e.Progress() > 0 {
			e.Spin.Found(&s)
			continue
		}
		if s.Polls++; s.Polls%YieldPolls == 0 {
			err = e.pause(ctx, &s, done)
		}
	}
	e.Spin.End(&s, err == nil)
	return err
}

// pause is what a waiter does after a round of polls in vain.
func (e *Engine) pause(ctx context.Context, s *IdleTime, done func() bool) error {
	runtime.Gosched()
	if e.Spin.Again(s) {
		return nil
	}
	return e.sleep(ctx, done)
}
