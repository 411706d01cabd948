package engine

import (
	"context"
	"runtime"
)

// YieldPolls is the number of idle polls of a waiter between two yields to other
// goroutines: a compromise between the latency of peers in the same process and the cost
// (a yield takes about 100 ns, a poll 5 to 50 ns).
const YieldPolls = 64

// kernelPolls replaces YieldPolls if a poll makes a system call of about 200 ns for each connection: a round then takes
// 1 us instead of 13 us.
const kernelPolls = 4

// Round is the number of idle polls of a waiter of a shared worker between two yields: YieldPolls, or kernelPolls
// if a polled iface has no flag for its events, so that each poll makes a system call.
func (e *Engine) Round() int {
	if e.kernel {
		return kernelPolls
	}
	return YieldPolls
}

// Until makes progress until done returns true, and does not call done after that. The caller must have
// the turn. Until checks ctx every YieldPolls polls, also if each poll finds an event.
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

// pause yields after a round of polls without an event, and sleeps if the waiter has spun
// long enough. It reports whether done, which it calls before the sleep, has returned true.
func (e *Engine) pause(ctx context.Context, s *IdleTime, done func() bool) (over bool, err error) {
	again := e.Spin.Again(s)
	runtime.Gosched()
	if again {
		s.Yielded()
		return false, nil
	}
	err = e.sleep(ctx, func() bool {
		over = done()
		return over
	})
	return over, err
}
