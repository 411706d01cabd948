package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

// LoadWatch measures how long threads wait for their CPUs, from the scheduler statistics of the kernel
// (Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat).
type LoadWatch struct {
	pid               int
	started           time.Time
	initiator, target time.Duration
	ok                bool
}

// WatchLoad starts a measurement of the calling thread and of all threads of process pid; 0 means no process. The same
// thread must call Load.
func WatchLoad(pid int) *LoadWatch {
	w := &LoadWatch{pid: pid, started: time.Now()}
	w.initiator, w.target, w.ok = w.read()
	return w
}

// Load returns the load since WatchLoad; nil if the kernel has no such statistics.
func (w *LoadWatch) Load() *result.Load {
	initiator, target, ok := w.read()
	elapsed := time.Since(w.started)
	if !ok || !w.ok || elapsed <= 0 {
		return nil
	}
	// The waits of threads that have ended are lost.
	share := func(now, before time.Duration) float64 { return max(0, (now-before).Seconds()/elapsed.Seconds()) }
	return &result.Load{Initiator: share(initiator, w.initiator), Target: share(target, w.target)}
}

func (w *LoadWatch) read() (initiator, target time.Duration, ok bool) {
	initiator, err := waited("/proc/thread-self/schedstat")
	if err != nil {
		return 0, 0, false
	}
	if w.pid == 0 {
		return initiator, 0, true
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", w.pid))
	if err != nil {
		return 0, 0, false
	}
	for _, file := range threads {
		if d, err := waited(file); err == nil { // a thread may have ended
			target += d
		}
	}
	return initiator, target, true
}

// waited returns the time that a thread was on a run queue without running.
func waited(file string) (time.Duration, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var ran, waits uint64
	if _, err := fmt.Sscan(string(text), &ran, &waits); err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return time.Duration(waits), nil
}
