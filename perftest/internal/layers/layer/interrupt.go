package layer

import (
	"context"
	"strings"
	"sync"
)

// Interrupt makes the goroutine that waits in an operation call a function. That goroutine owns the
// layers, so no other one may look at their state.
//
// Raise may be called by any goroutine, all else by the one that waits.
type Interrupt struct {
	parent context.Context
	look   func()
	ctx    context.Context // of parent; Raise ends it, and the goroutine that waits replaces it then

	mu     sync.Mutex
	cancel context.CancelFunc // of ctx
}

// NewInterrupt returns an Interrupt for waits that the end of parent ends.
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

// OnRaise sets what a wait calls once Raise was called; nil for nothing. look must not use the
// operation that waits.
func (i *Interrupt) OnRaise(look func()) { i.look = look }

// Raise interrupts the current wait, or the next one if there is none.
func (i *Interrupt) Raise() {
	i.mu.Lock()
	i.cancel()
	i.mu.Unlock()
}

// handle is called when ctx has ended. It returns nil if the wait must go on, otherwise why parent has ended.
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

// Wait is the context of one wait in a layer that blocks. Interrupted must be called when it has ended.
func (c *Config) Wait() context.Context {
	if c.Interrupt != nil {
		return c.Interrupt.ctx
	}
	return c.Context
}

// Interrupted returns nil if the context of Wait ended by an interrupt, so that the wait must be repeated;
// otherwise why Context has ended.
func (c *Config) Interrupted() error {
	if c.Interrupt != nil {
		return c.Interrupt.handle()
	}
	return context.Cause(c.Context)
}

// Stater is implemented by a Conn, an Op or a Part that can describe what it waits for.
type Stater interface {
	// State is several lines for people. Their text may change.
	State() string
}

// State describes what is a Stater among the parts of one end.
func State(parts ...any) (text string) {
	for _, p := range parts {
		if s, ok := p.(Stater); ok {
			if more := s.State(); !strings.Contains(text, more) { // an operation may have that of its Conn
				text += more
			}
		}
	}
	return text
}
