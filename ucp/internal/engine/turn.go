package engine

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Turn is the right to use a worker. Either one goroutine in a blocking call has it, or the goroutine that
// closes the worker, for which the blocking call ends.
type Turn struct {
	state  atomic.Uint32
	left   chan struct{} // closed by the blocking call that ends for Close
	closed chan struct{} // closed when Worker.Close is done
	mu     sync.Mutex    // held by Engine.Close
}

// Bits of Turn.state.
const (
	turnTaken   = 1 << iota // a goroutine is in a blocking call
	turnClosing             // Worker.Close waits for the turn, or has it
)

func (t *Turn) init() { t.left, t.closed = make(chan struct{}), make(chan struct{}) }

// Take begins a blocking call. It returns an error that wraps ErrClosed if the worker is
// closed, and panics if another blocking call is in progress: two goroutines that use a
// worker at once would corrupt its tables.
func (t *Turn) Take() error {
	if t.state.CompareAndSwap(0, turnTaken) {
		return nil
	}
	return t.closedError()
}

// closedError returns ErrClosed when the worker is closed; it panics if the turn is taken.
//
//go:noinline
func (t *Turn) closedError() error {
	if t.state.Load()&turnTaken != 0 {
		panic(uct.TwoAtOnce)
	}
	<-t.closed
	return ErrClosed
}

// ErrClosed is the error of calls of a closed worker.
var ErrClosed = fmt.Errorf("ucp: worker: %w", ucs.ErrClosed)

// Release ends a blocking call. If Worker.Close waits for the turn, Release waits until the worker is closed.
func (t *Turn) Release() {
	if !t.state.CompareAndSwap(turnTaken, 0) {
		t.waitUntilClosed()
	}
}

//go:noinline
func (t *Turn) waitUntilClosed() {
	t.state.Store(turnClosing)
	close(t.left)
	<-t.closed
}

// closing reports whether the blocking call must end for Worker.Close.
func (t *Turn) closing() bool { return t.state.Load()&turnClosing != 0 }

// Taken reports whether a goroutine is in a blocking call.
func (t *Turn) Taken() bool { return t.state.Load()&turnTaken != 0 }
