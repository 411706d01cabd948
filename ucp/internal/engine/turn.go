package engine

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Turn is who has a worker: a goroutine in a blocking call, or one that closes it, for
// which the former makes way.
type Turn struct {
	state  atomic.Uint32
	left   chan struct{} // closed by the blocking call that makes way
	closed chan struct{} // closed when Worker.Close is over
	mu     sync.Mutex    // held by Engine.Close
}

// Bits of Turn.state.
const (
	turnTaken   = 1 << iota // a goroutine is in a blocking call
	turnClosing             // the worker is to be closed
)

func (t *Turn) init() { t.left, t.closed = make(chan struct{}), make(chan struct{}) }

// Take begins a blocking call. It returns an error that wraps ErrClosed if the worker is
// closed, and panics if another blocking call has not ended: two goroutines that use a
// worker at once would destroy its tables.
func (t *Turn) Take() error {
	if t.state.CompareAndSwap(0, turnTaken) {
		return nil
	}
	return t.refuse()
}

//go:noinline
func (t *Turn) refuse() error {
	if t.state.Load()&turnTaken != 0 {
		panic(uct.TwoAtOnce)
	}
	<-t.closed
	return ErrClosed
}

// ErrClosed is how calls of a worker end that is closed.
var ErrClosed = fmt.Errorf("ucp: worker: %w", ucs.ErrClosed)

// Give ends a blocking call. If the worker is to be closed, it waits until it is.
func (t *Turn) Give() {
	if !t.state.CompareAndSwap(turnTaken, 0) {
		t.makeWay()
	}
}

//go:noinline
func (t *Turn) makeWay() {
	t.state.Store(turnClosing)
	close(t.left)
	<-t.closed
}

// closing reports whether the blocking call is to end.
func (t *Turn) closing() bool { return t.state.Load()&turnClosing != 0 }

// Taken reports whether a goroutine is in a blocking call.
func (t *Turn) Taken() bool { return t.state.Load()&turnTaken != 0 }
