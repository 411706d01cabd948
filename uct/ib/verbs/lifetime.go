package verbs

import (
	"fmt"
	"sync"

	"github.com/gucx/gucx/ucs"
)

// lifetime keeps a parent from being closed before its children. Control path
// only.
type lifetime struct {
	mu       sync.Mutex
	children int
	closed   bool
}

// adopt counts a child in; ErrClosed after close.
func (l *lifetime) adopt() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ucs.ErrClosed
	}
	l.children++
	return nil
}

// release counts a child out.
func (l *lifetime) release() {
	l.mu.Lock()
	l.children--
	l.mu.Unlock()
}

// close runs destroy once. With children open it does not, and returns ErrBusy.
// A second close does nothing; one after a destroy that failed tries again.
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

// parents is what a new object hangs on.
type parents []*lifetime

// adopt counts a child in to all, or to none.
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
