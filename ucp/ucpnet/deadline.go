package ucpnet

import (
	"cmp"
	"context"
	"os"
	"sync"
	"time"
)

// deadline is the context of the reads or the writes of a connection: it ends when the
// deadline that was set last has passed, or the connection is closed.
type deadline struct {
	parent context.Context // ends with the connection

	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // of the deadline; nil if there is none
	set    int         // how often it was set: an older timer has nothing to say
}

func (d *deadline) init(parent context.Context) {
	d.parent = parent
	d.ctx, d.cancel = context.WithCancelCause(parent)
}

// context is what a call that begins now obeys.
func (d *deadline) context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ctx
}

// cause is why a call with ctx, which has ended, fails: that the connection is closed comes first.
func (d *deadline) cause(ctx context.Context) error {
	return cmp.Or(context.Cause(d.parent), context.Cause(ctx))
}

// at sets the deadline, for calls that wait as for later ones; zero means none.
func (d *deadline) at(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.ctx.Err() != nil && d.parent.Err() == nil {
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

// passed ends the context, unless the deadline was set again meanwhile.
func (d *deadline) passed(set int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if set == d.set {
		d.cancel(os.ErrDeadlineExceeded)
	}
}

// stop lets go of the timer and the context.
func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set++
	if d.timer != nil {
		d.timer.Stop()
	}
	d.cancel(nil)
}
