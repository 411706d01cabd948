package base

import (
	"fmt"
	"sync"

	"github.com/gucx/gucx/uct"
)

// Users counts the open ifaces and memory handles of a memory domain, which keep it
// open. The zero value is open and has none. Methods may be called by any goroutine.
type Users struct {
	mu     sync.Mutex
	n      int
	closed bool
}

// Hold counts one more user. ErrClosed after Close.
func (u *Users) Hold() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return uct.ErrClosed
	}
	u.n++
	return nil
}

// Drop takes back one Hold.
func (u *Users) Drop() {
	u.mu.Lock()
	u.n--
	u.mu.Unlock()
}

// Close runs release, unless there are users: then ErrBusy. What release returns as
// an error keeps the domain open. Later calls do nothing and return nil.
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
