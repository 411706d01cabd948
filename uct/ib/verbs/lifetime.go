package verbs

import (
	"fmt"
	"sync"

	"github.com/gucx/gucx/ucs"
)

// lifetime prevents that a parent is closed before its children. It is for the control path
// only.
type lifetime struct {
	mu       sync.Mutex
	children int
	closed   bool
}

// adopt adds a child; ErrClosed after close.
func (l *lifetime) adopt() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ucs.ErrClosed
	}
	l.children++
	return nil
}

// release removes a child.
func (l *lifetime) release() {
	l.mu.Lock()
	l.children--
	l.mu.Unlock()
}

// close calls destroy. While children are open, it returns ErrBusy instead.
// After destroy has succeeded, close does nothing.
func (l *lifetime) close(op string, destroy func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	if l.children > 0 {
		return &ucs.OpError{TL: "verbs", Op: op, Err: fmt.Errorf("%d objects that use it are open: %w", l.children, ucs.ErrBusy)}
	}
	if err := destroy(); err != nil {
		return err
	}
	l.closed = true
	return nil
}

// parents are the parents of a new object.
type parents []*lifetime

// adopt adds a child to all parents, or to none.
func (p parents) adopt(op string) error {
	for i, l := range p {
		if err := l.adopt(); err != nil {
			p[:i].release()
			return opError(op, fmt.Errorf("parent: %w", err))
		}
	}
	return nil
}

func (p parents) release() {
	for _, l := range p {
		l.release()
	}
}

func opError(op string, err error) error {
	return &ucs.OpError{TL: "verbs", Op: op, Err: err}
}

// invalid is opError for a parameter.
func invalid(op, format string, args ...any) error {
	return opError(op, fmt.Errorf(format+": %w", append(args, ucs.ErrInvalidParam)...))
}

// tooLong is opError for a length beyond the device's limit.
func tooLong(op, what string, n, limit int) error {
	return opError(op, fmt.Errorf("%s %d, limit %d: %w", what, n, limit, ucs.ErrTooLong))
}
