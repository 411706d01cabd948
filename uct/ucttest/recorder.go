package ucttest

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// recorder is a checkT that records failures and log lines in a Result. Any goroutine may call it. After hang it ignores
// further calls.
type recorder struct {
	mu      sync.Mutex
	result  Result
	header  []byte // goroutineHeader of the goroutine that runs the check
	cleanup []func()
}

// record runs f and then its clean-up functions, the last registered first.
func (r *recorder) record(f func()) {
	r.isolate(f)
	for len(r.cleanup) > 0 {
		last := len(r.cleanup) - 1
		f := r.cleanup[last]
		r.cleanup = r.cleanup[:last]
		r.isolate(f)
	}
}

// isolate runs f on a new goroutine and waits for it. FailNow and Skipf exit that goroutine.
func (r *recorder) isolate(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				r.Errorf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		r.mu.Lock()
		r.header = goroutineHeader()
		r.mu.Unlock()
		f()
	}()
	<-done
}

// goroutineHeader returns the first bytes of the stack trace of this goroutine: "goroutine 12 [".
func goroutineHeader() []byte {
	b := make([]byte, 64)
	b = b[:runtime.Stack(b, false)]
	return b[:bytes.IndexByte(b, '[')+1]
}

// hang fails the check because it did not return within limit. The message contains its stack.
func (r *recorder) hang(limit time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Hung = true
	r.fail(fmt.Sprintf("did not return within %v:\n%s", limit, stackOf(r.header)))
}

// stackOf returns the stack of the goroutine with this header, or nil.
func stackOf(header []byte) []byte {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	for stack := range bytes.SplitSeq(all, []byte("\n\n")) {
		if bytes.HasPrefix(stack, header) {
			return stack
		}
	}
	return nil
}

// outcome returns a copy of the current result.
func (r *recorder) outcome() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.result
	v.Log = slices.Clone(v.Log)
	return v
}

// fail records a failure. The caller holds r.mu.
func (r *recorder) fail(what string) {
	if !r.result.Failed {
		r.result.Failed, r.result.Fault = true, what
	}
	r.result.Log = append(r.result.Log, what)
}

func (r *recorder) Helper() {}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.result.Hung {
		r.result.Log = append(r.result.Log, fmt.Sprintf(format, args...))
	}
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.result.Hung {
		r.fail(fmt.Sprintf(format, args...))
	}
}

func (r *recorder) FailNow() {
	r.mu.Lock()
	r.result.Failed = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result.Failed
}

func (r *recorder) Skipf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	r.result.Skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
