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

// Mode is how goroutines have workers, by the names that ucx_perftest -M has for what a
// worker permits.
type Mode string

// Modes. ucx_perftest has no Processes, which is what osu_mbw_mr measures.
const (
	// Single gives each goroutine a worker of its own.
	Single Mode = "single"
	// Serialized gives all of them one worker, with which they take turns under a lock of
	// the program; who waits polls.
	Serialized Mode = "serialized"
	// Multi gives all of them one ucp.SharedWorker.
	Multi Mode = "multi"
	// Processes gives each goroutine a process, with a target process of its own: pairs of processes that
	// measure at the same time.
	Processes Mode = "processes"
)

// Modes are all of them.
func Modes() []Mode { return []Mode{Single, Serialized, Multi, Processes} }

// ModeNames are the names that ParseMode takes.
func ModeNames() (names []string) {
	for _, m := range Modes() {
		names = append(names, string(m))
	}
	return names
}

// ParseMode is the mode of that name.
func ParseMode(name string) (Mode, error) {
	for _, m := range Modes() {
		if string(m) == name {
			return m, nil
		}
	}
	return "", fmt.Errorf("thread mode %q: there are %s", name, strings.Join(ModeNames(), ", "))
}

// workers is how many workers n goroutines have.
func (m Mode) workers(n int) int {
	if m == Single {
		return n
	}
	return 1
}

// worker is one as goroutines use it, each of them as it does a ucp.SharedWorker.
type worker interface {
	Do(f func(w *ucp.Worker))
	Run(ctx context.Context, start func() (*ucp.Request, error)) error
	Until(ctx context.Context, done func() bool) error
	Serve(ctx context.Context) error
	Close() error
}

// share makes a worker what goroutines use in this mode.
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

// Do has the worker.
func (s *single) Do(f func(w *ucp.Worker)) { f(s.Worker) }

// Run starts an operation and waits for its end.
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

// Do has the worker alone.
func (s *serialized) Do(f func(w *ucp.Worker)) {
	s.mu.Lock()
	f(s.w)
	s.mu.Unlock()
}

// Run starts an operation and polls for its end.
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
	// yieldPolls is how many polls in vain go by between two yields to other goroutines,
	// as in blocking calls of ucp.
	yieldPolls = 64
	// yieldsPerLook is how many of these go by between two yields to other processes, and
	// looks at the context.
	yieldsPerLook = 16
)

// Until polls until done reports true. Others have the worker between any two polls.
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

// Serve makes progress until ctx ends, and sleeps where there is nothing to do. Nobody else has
// the worker meanwhile.
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

// ErrData says that data was not what had been sent.
var ErrData = errors.New("wrong data")
