package overlap

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucp"
)

// realNode is a side in a process of its own. The goroutine that computes and calls is locked to a
// thread: the CPU time of that thread is that of the program. The other threads of the process are
// those of the device in software and of the runtime.
type realNode struct {
	ctx    context.Context
	job    job
	w      *ucp.Worker
	ep     *ucp.EP
	gate   gate
	memory Memory
	loop   workLoop
	undo   cleanup.Stack
}

// open opens a worker and returns its address.
func (n *realNode) open(j job) (addr []byte, err error) {
	n.job = j
	cfg, err := Config(j.Protocol)
	if err != nil {
		return nil, err
	}
	c, err := cfg.Open()
	if err != nil {
		return nil, err
	}
	n.undo.Add(c.Close)
	if n.memory.Mem, err = c.MemAlloc(j.Size); err != nil {
		return nil, err
	}
	n.memory.Buf = n.memory.Mem.Bytes()
	n.undo.Add(n.memory.Mem.Close)
	if n.w, err = c.NewWorker(ucp.WorkerConfig{SpinPolls: -1}); err != nil {
		return nil, err
	}
	n.undo.Add(n.w.Close)
	n.gate.open(n.w)
	n.loop.calibrate()
	return n.w.Address(), nil
}

// connect creates the endpoint and exchanges messages in both directions.
func (n *realNode) connect(addr []byte) (err error) {
	if n.ep, err = n.w.NewEP(addr, ucp.EPConfig{}); err != nil {
		return err
	}
	for _, side := range []Side{Isend, Irecv} {
		if _, err = n.exchange(Exchange{Side: side, Size: 1, Iterations: 1}); err != nil {
			return fmt.Errorf("first messages: %w", err)
		}
	}
	return nil
}

// exchange runs the node's part of an exchange.
func (n *realNode) exchange(x Exchange) (t Times, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !n.job.Measured {
		return t, x.Serve(n, n.memory)
	}
	// The time of the thread is included in that of the process.
	process, thread := cpu(unix.CLOCK_PROCESS_CPUTIME_ID), cpu(unix.CLOCK_THREAD_CPUTIME_ID)
	t.Iteration, err = x.Measure(n, n.memory)
	all := time.Duration(x.Warmup + x.Iterations)
	t.Program = (cpu(unix.CLOCK_THREAD_CPUTIME_ID) - thread) / all
	t.Process = (cpu(unix.CLOCK_PROCESS_CPUTIME_ID) - process) / all
	return t, err
}

// cpu returns a CPU clock of the kernel, which always exists.
func cpu(clock int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(clock, &t)
	return time.Duration(t.Nano())
}

// Worker implements Node.
func (n *realNode) Worker() *ucp.Worker { return n.w }

// TagSend implements Node.
func (n *realNode) TagSend(tag uint64, buf []byte, p *ucp.OpParams) (*ucp.Request, error) {
	return n.ep.TagSend(tag, buf, p)
}

// EP implements Node.
func (n *realNode) EP() (*ucp.EP, error) { return n.ep, nil }

// Gate implements Node.
func (n *realNode) Gate() *gate { return &n.gate }

// Wait implements Node.
func (n *realNode) Wait(q *ucp.Request) error {
	if q == nil {
		return nil
	}
	if err := n.Until(q.Done); err != nil {
		q.Release()
		return err
	}
	_, err := q.Test()
	return err
}

// idlePolls is the number of polls between two checks whether the measurement is over. These checks
// yield to the device on a machine with one CPU: a goroutine that is locked to its thread yields
// only by a thread switch.
const idlePolls = 1 << 10

// Until implements Node. It polls, as MPI does.
func (n *realNode) Until(done func() bool) error {
	for i := 1; !done(); i++ {
		n.w.Progress()
		if i%idlePolls != 0 {
			continue
		}
		if n.ctx.Err() != nil {
			return context.Cause(n.ctx)
		}
		runtime.Gosched()
	}
	return nil
}

// Compute implements Node.
func (n *realNode) Compute(d time.Duration) { n.loop.run(d) }

var start = time.Now()

// Now implements Node.
func (n *realNode) Now() time.Duration { return time.Since(start) }

// workLoop computes for a time that is determined by its number of rounds, not by a clock.
type workLoop struct {
	perMicro float64
	sum      uint64
}

// rounds runs n rounds; each needs the result of the previous one.
func (l *workLoop) rounds(n int) {
	v := l.sum
	for i := range n {
		v = v*6364136223846793005 + uint64(i) // a step of Knuth's generator for 64 bits, MMIX
	}
	l.sum = v
}

// Calibration uses the fastest of several runs, which nothing has disturbed.
const (
	calibrationRounds = 100_000
	calibrationRuns   = 20
)

func (l *workLoop) calibrate() {
	best := time.Duration(1 << 62)
	for range calibrationRuns {
		from := time.Now()
		l.rounds(calibrationRounds)
		best = min(best, time.Since(from))
	}
	l.perMicro = calibrationRounds / (float64(max(best, 1)) / float64(time.Microsecond))
}

func (l *workLoop) run(d time.Duration) {
	l.rounds(int(float64(d) / float64(time.Microsecond) * l.perMicro))
}
