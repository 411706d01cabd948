package base

import (
	"fmt"
	"sync"

	"github.com/gucx/gucx/uct"
)

// Users counts the open ifaces and memory handles of a memory domain, which must be closed
// before the domain. The zero value is open and has none. Any goroutine may call its methods.
type Users struct {
	mu     sync.Mutex
	n      int
	closed bool
}

// Hold adds a user: the domain cannot be closed before Drop. ErrClosed after Close.
func (u *Users) Hold() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return uct.ErrClosed
	}
	u.n++
	return nil
}

// Drop removes a user that Hold has added.
func (u *Users) Drop() {
	u.mu.Lock()
	u.n--
	u.mu.Unlock()
}

// Close runs release; ErrBusy while there are users. If release returns an error, the domain is
// still open and Close returns the error. After a success, further calls have no effect and return nil.
func (u *Users) Close(release func() error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil
	}
	if u.n != 0 {
		return fmt.Errorf("%w: %d ifaces and memory handles are open", uct.ErrBusy, u.n)
	}
	if err := release(); err != nil {
		return err
	}
	u.closed = true
	return nil
}
