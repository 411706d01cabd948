package wrap

import (
	"fmt"

	"github.com/gucx/gucx/uct"
)

// Trace is a layer that logs each call of an EP, each message that arrives and
// each EP that fails, in one line without newline. The goroutines that own the ifaces call log.
func Trace(log func(line string)) Hooks {
	return Hooks{
		Iface: func(i *Iface) {
			i.Iface = &tracedIface{i.Iface, log}
			next := i.OnError
			i.OnError = func(ep uct.EP, err error) {
				log(fmt.Sprintf("on error %p: %v", ep, err))
				if next != nil {
					next(ep, err)
				}
			}
		},
		EP: func(e *EP) {
			t := &tracedEP{e.EP, fmt.Sprintf("ep %p: ", e), log}
			e.EP = t
			e.Intercept(t)
		},
	}
}

type tracedIface struct {
	uct.Iface
	log func(string)
}

// SetAMHandler wraps the handler.
func (i *tracedIface) SetAMHandler(id uint8, h uct.AMHandler) error {
	if h == nil {
		return i.Iface.SetAMHandler(id, nil)
	}
	return i.Iface.SetAMHandler(id, uct.AMHandlerFunc(func(data []byte, desc uct.Desc) bool {
		n := len(data)
		keep := h.HandleAM(data, desc)
		i.log(fmt.Sprintf("am %d of %d bytes arrived, kept %t", id, n, keep))
		return keep
	}))
}

type tracedEP struct {
	uct.EP
	name string
	log  func(string)
}

// Before implements Interceptor.
func (e *tracedEP) Before(uct.Variant) error { return nil }

// After implements Interceptor.
func (e *tracedEP) After(v uct.Variant, n int, err error) {
	e.log(fmt.Sprintf("%s%v of %d bytes: %v", e.name, v, n, err))
}

// Flush logs the flush.
func (e *tracedEP) Flush(c *uct.Completion) (bool, error) {
	pending, err := e.EP.Flush(c)
	e.log(fmt.Sprintf("%sflush: pending %t, %v", e.name, pending, err))
	return pending, err
}

// Fence logs the fence.
func (e *tracedEP) Fence() error {
	err := e.EP.Fence()
	e.log(fmt.Sprintf("%sfence: %v", e.name, err))
	return err
}

// AddPending logs the request.
func (e *tracedEP) AddPending(r *uct.PendingReq) error {
	err := e.EP.AddPending(r)
	e.log(fmt.Sprintf("%sadd pending: %v", e.name, err))
	return err
}

// Close logs the close.
func (e *tracedEP) Close() error {
	err := e.EP.Close()
	e.log(fmt.Sprintf("%sclose: %v", e.name, err))
	return err
}

// Delay is a layer in which only every rounds-th call of Progress reaches the transport:
// completions and arrivals are late, which exposes callers that rely on a number of calls of
// Progress. rounds is at least 1.
func Delay(rounds int) Hooks {
	return Hooks{Iface: func(i *Iface) {
		i.Iface = &delayedIface{Iface: i.Iface, rounds: max(rounds, 1)}
		i.Has.Guarded = false
		i.HoldBack()
	}}
}

type delayedIface struct {
	uct.Iface
	rounds int
	n      int
}

// Progress does nothing most of the time.
func (i *delayedIface) Progress() int {
	if i.n++; i.n%i.rounds != 0 {
		return 0
	}
	return i.Iface.Progress()
}
