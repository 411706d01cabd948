package ucpnet

import (
	"cmp"
	"context"
	"os"
	"sync"
	"time"
)

// deadline is the context of the reads or the writes of a connection. The context ends when the
// deadline that was set last has passed, or when the connection is closed.
type deadline struct {
	parent context.Context // ends with the connection

	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // timer of the deadline; nil if there is no deadline
	set    int         // number of calls of at; a timer of an earlier call has no effect
}

func (d *deadline) init(parent context.Context) {
	d.parent = parent
	d.ctx, d.cancel = context.WithCancelCause(parent)
}

// context returns the context of a call that begins now.
func (d *deadline) context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ctx
}

// cause returns the error of a call whose ctx is done: net.ErrClosed if the connection is closed, otherwise that of the
// deadline.
func (d *deadline) cause(ctx context.Context) error {
	return cmp.Or(context.Cause(d.parent), context.Cause(ctx))
}

// at sets the deadline of blocked and later calls; zero means none.
func (d *deadline) at(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.parent.Err() != nil { // after stop, nothing would stop a timer
		return
	}
	if d.ctx.Err() != nil {
		d.ctx, d.cancel = context.WithCancelCause(d.parent)
	}
	switch left := time.Until(t); {
	case t.IsZero():
	case left <= 0:
		d.cancel(os.ErrDeadlineExceeded)
	default:
		set := d.set
		d.timer = time.AfterFunc(left, func() { d.passed(set) })
	}
}

// passed cancels the context, unless the deadline was set again.
func (d *deadline) passed(set int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if set == d.set {
		d.cancel(os.ErrDeadlineExceeded)
	}
}

// stop releases the timer and the context.
func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set++
	if d.timer != nil {
		d.timer.Stop()
	}
	d.cancel(nil)
}
