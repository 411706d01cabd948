package threads

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucp"
)

// Mode is the assignment of workers to goroutines, with the names of ucx_perftest -M.
type Mode string

// Modes. ucx_perftest has no Processes, which osu_mbw_mr measures.
const (
	// Single gives each goroutine a worker of its own.
	Single Mode = "single"
	// Serialized gives all of them one worker, which they use in turns under a lock of the program; waiting goroutines
	// poll.
	Serialized Mode = "serialized"
	// Multi gives all of them one ucp.SharedWorker.
	Multi Mode = "multi"
	// Processes gives each goroutine a process, with a target process of its own: pairs of processes that measure
	// concurrently.
	Processes Mode = "processes"
)

// Modes lists all modes.
func Modes() []Mode { return []Mode{Single, Serialized, Multi, Processes} }

// ModeNames returns the names that ParseMode accepts.
func ModeNames() (names []string) {
	for _, m := range Modes() {
		names = append(names, string(m))
	}
	return names
}

// ParseMode returns the mode with a name.
func ParseMode(name string) (Mode, error) {
	for _, m := range Modes() {
		if string(m) == name {
			return m, nil
		}
	}
	return "", fmt.Errorf("thread mode %q: there are %s", name, strings.Join(ModeNames(), ", "))
}

// workers returns the number of workers for n goroutines.
func (m Mode) workers(n int) int {
	if m == Single {
		return n
	}
	return 1
}

// worker is a worker with the methods of a ucp.SharedWorker.
type worker interface {
	Do(f func(w *ucp.Worker))
	Run(ctx context.Context, start func() (*ucp.Request, error)) error
	Until(ctx context.Context, done func() bool) error
	Serve(ctx context.Context) error
	Close() error
}

// share wraps a worker for the goroutines of this mode.
func (m Mode) share(w *ucp.Worker) worker {
	switch m {
	case Serialized:
		return &serialized{w: w}
	case Multi:
		return w.Share()
	}
	return &single{w}
}

// single is a worker of one goroutine.
type single struct{ *ucp.Worker }

// Do calls f with the worker.
func (s *single) Do(f func(w *ucp.Worker)) { f(s.Worker) }

// Run starts an operation and waits for it.
func (s *single) Run(ctx context.Context, start func() (*ucp.Request, error)) error {
	r, err := start()
	if r == nil || err != nil {
		return err
	}
	if err = s.Until(ctx, r.Done); err != nil {
		r.GiveUp()
		return err
	}
	_, err = r.Test()
	return err
}

// serialized is a worker with the lock of a program that permits one call at a time.
type serialized struct {
	mu sync.Mutex
	w  *ucp.Worker
}

// Do calls f while no other goroutine uses the worker.
func (s *serialized) Do(f func(w *ucp.Worker)) {
	s.mu.Lock()
	f(s.w)
	s.mu.Unlock()
}

// Run starts an operation and polls until it is complete.
func (s *serialized) Run(ctx context.Context, start func() (*ucp.Request, error)) error {
	s.mu.Lock()
	r, err := start()
	s.mu.Unlock()
	if r == nil || err != nil {
		return err
	}
	err = s.Until(ctx, r.Done)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		r.Release()
		return err
	}
	_, err = r.Test()
	return err
}

const (
	// yieldPolls is the number of idle polls between two yields to other goroutines, as in blocking calls of ucp.
	yieldPolls = 64
	// yieldsPerLook is the number of these yields between two yields to other processes, and checks of the context.
	yieldsPerLook = 16
)

// Until polls until done returns true. Other goroutines may use the worker between two polls.
func (s *serialized) Until(ctx context.Context, done func() bool) error {
	for polls := 1; ; polls++ {
		if s.poll(done) {
			return nil
		}
		if polls%yieldPolls == 0 {
			runtime.Gosched()
		}
		if polls%(yieldPolls*yieldsPerLook) == 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
}

func (s *serialized) poll(done func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done() {
		return true
	}
	s.w.Progress()
	return done()
}

// Serve makes progress until ctx ends, and sleeps while there is no work. No other goroutine uses the worker meanwhile.
func (s *serialized) Serve(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Serve(ctx)
}

// Close closes the worker.
func (s *serialized) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Close()
}

// ErrData is the error if received data differs from the sent data.
var ErrData = errors.New("wrong data")
