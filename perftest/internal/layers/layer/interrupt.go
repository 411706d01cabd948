package layer

import (
	"context"
	"strings"
	"sync"
)

// Interrupt makes the goroutine that waits in an operation call a function. Only that goroutine may access the state of
// the layers.
//
// Raise may be called by any goroutine, the other methods only by the goroutine that waits.
type Interrupt struct {
	parent context.Context
	look   func()
	ctx    context.Context // child of parent; Raise cancels it, and the waiting goroutine then replaces it

	mu     sync.Mutex
	cancel context.CancelFunc // cancels ctx
}

// NewInterrupt returns an Interrupt for waits that end when parent ends.
func NewInterrupt(parent context.Context) *Interrupt {
	i := &Interrupt{parent: parent}
	i.renew()
	return i
}

func (i *Interrupt) renew() {
	ctx, cancel := context.WithCancel(i.parent)
	i.mu.Lock()
	i.ctx, i.cancel = ctx, cancel
	i.mu.Unlock()
}

// OnRaise sets the function that a wait calls after Raise; nil removes it. look must not use the operation that waits.
func (i *Interrupt) OnRaise(look func()) { i.look = look }

// Raise interrupts the current wait, or the next one if there is none.
func (i *Interrupt) Raise() {
	i.mu.Lock()
	i.cancel()
	i.mu.Unlock()
}

// handle is called when ctx has ended. It returns nil if the wait must continue, otherwise the cause of the end of
// parent.
func (i *Interrupt) handle() error {
	if i.parent.Err() != nil {
		return context.Cause(i.parent)
	}
	i.renew()
	if i.look != nil {
		i.look()
	}
	return nil
}

// Wait returns the context of one wait in a layer that blocks. The caller must call Interrupted when the context has
// ended.
func (c *Config) Wait() context.Context {
	if c.Interrupt != nil {
		return c.Interrupt.ctx
	}
	return c.Context
}

// Interrupted returns nil if an interrupt ended the context of Wait: the caller must wait again. Otherwise it returns
// the cause of the end of Context.
func (c *Config) Interrupted() error {
	if c.Interrupt != nil {
		return c.Interrupt.handle()
	}
	return context.Cause(c.Context)
}

// Stater is implemented by a Conn, an Op or a Part that can describe what it waits for.
type Stater interface {
	// State returns several lines of text. Their format may change.
	State() string
}

// State joins the states of those parts of one side that implement Stater.
func State(parts ...any) (text string) {
	for _, p := range parts {
		if s, ok := p.(Stater); ok {
			if more := s.State(); !strings.Contains(text, more) { // an operation may return the state of its Conn
				text += more
			}
		}
	}
	return text
}
