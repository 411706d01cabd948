// Package steps runs the threads of a benchmark, each of which is a step function: one
// call of it is one call of post or of poll. In real time each thread has a goroutine;
// a model of time does one step of one thread after the other.
package steps

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Stepper is a thread. One goroutine at a time calls its methods.
type Stepper interface {
	// Step goes on; more is false when there is nothing left to do.
	Step() (more bool, err error)
	// Idle says that the last step found nothing to do yet.
	Idle() bool
}

// Times is when each thread began and ended, from the same moment.
type Times struct {
	Zero       time.Time // that moment; the zero Time in virtual time
	Begin, End []time.Duration
	CPU        time.Duration // that the process used meanwhile; 0 in virtual time
}

// Run does all steps of all threads in real time. A thread that is idle lets the others
// run, and other processes: there may be more of them than processors. The first error ends all; so does the
// end of ctx, with its cause.
func Run(ctx context.Context, threads []Stepper) (Times, error) {
	var (
		stop  atomic.Bool
		start = make(chan struct{})
		wait  sync.WaitGroup
		errs  = make([]error, len(threads))
		times = Times{Zero: time.Now(), Begin: make([]time.Duration, len(threads)), End: make([]time.Duration, len(threads))}
	)
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	for t, th := range threads {
		wait.Go(func() {
			<-start
			times.Begin[t] = time.Since(times.Zero)
			if errs[t] = loop(th, &stop); errs[t] != nil {
				stop.Store(true)
			}
			times.End[t] = time.Since(times.Zero)
		})
	}
	before := cpuTime()
	close(start)
	wait.Wait()
	times.CPU = cpuTime() - before
	if err := errors.Join(errs...); err != nil {
		return times, err
	}
	return times, context.Cause(ctx)
}

// patience is after how many idle steps in a row a thread lets other processes run too:
// about as long as a round trip through the device takes.
const patience = 64

func loop(th Stepper, stop *atomic.Bool) error {
	for idle := 0; !stop.Load(); {
		more, err := th.Step()
		if err != nil || !more {
			return err
		}
		if !th.Idle() {
			idle = 0
			continue
		}
		runtime.Gosched()
		if idle++; idle%patience == 0 {
			_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // it does not fail
		}
	}
	return nil
}

// cpuTime is what all threads of this process have used. Unlike the time that passes
// it does not depend on what else the machine does.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0 // it does not fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
