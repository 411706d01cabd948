// Package steps runs the threads of a benchmark. Each thread is a step function: one step is one call of post or of
// poll. In real time each thread has a goroutine; a model of time runs single steps of the threads one after the other.
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
	// Step does the next call; more is false when no work is left.
	Step() (more bool, err error)
	// Idle reports that the last step had nothing to do yet.
	Idle() bool
}

// Times are the start and end of each thread, relative to the same moment.
type Times struct {
	Zero       time.Time // that moment; the zero Time in virtual time
	Begin, End []time.Duration
	CPU        time.Duration // CPU time of the process; 0 in virtual time
}

// Run runs all steps of all threads in real time. An idle thread yields to the others, and to other processes: there
// may be more threads than CPUs. The first error ends the run, and so does ctx, with its cause.
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

// patience is the number of consecutive idle steps after which a thread also yields to other processes: about as long
// as a round trip through the device takes.
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

// cpuTime returns the CPU time of all threads of this process. Unlike elapsed time it does not depend on other load of
// the machine.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
