package engine

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// EventFD returns the descriptor that is readable when Park would return. The engine owns it. It does not change
// until Close, and is level-triggered.
func (e *Engine) EventFD() (int, error) {
	if err := e.expose(); err != nil {
		return 0, err
	}
	return e.park.epfd, nil
}

// Arm is ReadyToSleep for an owner that waits on EventFD and not in Park. It makes no progress and runs no callbacks.
// Errors: ErrBusy if Progress may have work, or if Signal may have been called since the last Arm; an error that wraps
// ErrUnsupported if a polled iface has no events.
func (e *Engine) Arm() error {
	if !e.exposed { // a call of Signal before had no effect
		if err := e.expose(); err != nil {
			return err
		}
		return e.busy()
	}
	for _, i := range e.ifaces {
		if i.polled && i.waker == nil {
			r := i.Attr().Resource
			return fmt.Errorf("ucp: arm: %s %s has no events: %w", r.Transport, r.Device, ucs.ErrUnsupported)
		}
	}
	e.Push()
	if e.markWoken(e.park.poll()) {
		return e.busy()
	}
	ready, err := e.canSleep()
	if !ready && err == nil {
		err = e.busy()
	}
	return err
}

// expose makes Signal have an effect from now on, also while no goroutine is in Park.
func (e *Engine) expose() error {
	if err := e.makeParker(); err != nil {
		return err
	}
	e.exposed = true
	e.sleeping.Store(true) // pairs with the load in Signal
	return nil
}

// busy makes the next Progress check everything, and returns ErrBusy.
func (e *Engine) busy() error {
	e.Ticks = due
	return uct.ErrBusy
}
