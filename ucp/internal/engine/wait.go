package engine

import (
	"context"
	"runtime"
)

// YieldPolls is how many idle polls a waiter does between two yields to other
// goroutines: often enough for peers of the same process, seldom enough not to cost
// (a yield is some 100 ns, a poll 5 to 50).
const YieldPolls = 64

// kernelPolls is YieldPolls where a poll is a system call for each connection, of some 200 ns: it takes a
// microsecond, and not 13.
const kernelPolls = 4

// Round is how many idle polls a waiter of a shared worker does between two yields: YieldPolls, or kernelPolls
// if an iface that is polled has no flag for its events, as it asks the kernel then.
func (e *Engine) Round() int {
	if e.kernel {
		return kernelPolls
	}
	return YieldPolls
}

// Until makes progress until done reports true, and does not call done after that. The caller has
// the turn. It looks at ctx every YieldPolls polls, also if each of them finds something.
func (e *Engine) Until(ctx context.Context, done func() bool) (err error) {
	var s IdleTime
	for polls, over := 1, false; err == nil && !over && !done(); polls++ {
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
			over, err = e.pause(ctx, &s, done)
		}
	}
	e.Spin.End(&s, err == nil)
	return err
}

// pause yields after a round of polls that found nothing, and sleeps if the waiter has spun for long
// enough. It reports whether done, which it calls before the sleep, has returned true.
func (e *Engine) pause(ctx context.Context, s *IdleTime, done func() bool) (over bool, err error) {
	runtime.Gosched()
	if e.Spin.Again(s) {
		return false, nil
	}
	err = e.sleep(ctx, func() bool {
		over = done()
		return over
	})
	return over, err
}
