package ucttest

import (
	"fmt"

	"github.com/gucx/gucx/uct"
)

// Trace returns an OpenMD whose endpoints and handlers tell log of each call, one
// line without newline each. Lines of several ifaces come from their goroutines.
func Trace(open func() (uct.MD, error), log func(line string)) func() (uct.MD, error) {
	w := &wrapping{
		iface: func(i *ifaceParts) {
			i.Iface = &tracedIface{i.Iface, log}
			tell := i.onError
			i.onError = func(ep uct.EP, err error) {
				log(fmt.Sprintf("on error %p: %v", ep, err))
				if tell != nil {
					tell(ep, err)
				}
			}
		},
		ep: func(e *epParts) {
			name := fmt.Sprintf("ep %p: ", e)
			e.eachPost(func(op string) { log(name + op) })
			e.EP = &tracedEP{e.EP, name, log}
		},
	}
	return wrapped(open, w)
}

// wrapped opens and wraps.
func wrapped(open func() (uct.MD, error), w *wrapping) func() (uct.MD, error) {
	return func() (uct.MD, error) {
		md, err := open()
		if err != nil {
			return nil, err
		}
		return wrapMD(md, w), nil
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
		keep := h.HandleAM(data, desc)
		i.log(fmt.Sprintf("am %d of %d bytes arrived, kept %t", id, len(data), keep))
		return keep
	}))
}

type tracedEP struct {
	uct.EP
	name string
	log  func(string)
}

// Flush tells of the flush.
func (e *tracedEP) Flush(c *uct.Completion) (bool, error) {
	pending, err := e.EP.Flush(c)
	e.log(fmt.Sprintf("%sflush: pending %t, %v", e.name, pending, err))
	return pending, err
}

// Fence tells of the fence.
func (e *tracedEP) Fence() error {
	err := e.EP.Fence()
	e.log(fmt.Sprintf("%sfence: %v", e.name, err))
	return err
}

// AddPending tells of the request.
func (e *tracedEP) AddPending(r *uct.PendingReq) error {
	err := e.EP.AddPending(r)
	e.log(fmt.Sprintf("%sadd pending: %v", e.name, err))
	return err
}

// Close tells of the end.
func (e *tracedEP) Close() error {
	err := e.EP.Close()
	e.log(fmt.Sprintf("%sclose: %v", e.name, err))
	return err
}

// Delay returns an OpenMD whose ifaces do something in every rounds-th call of
// Progress only: completions and arrivals come late, and callers that count calls
// of Progress are found out. rounds is at least 1.
func Delay(open func() (uct.MD, error), rounds int) func() (uct.MD, error) {
	return wrapped(open, &wrapping{iface: func(i *ifaceParts) {
		i.Iface = &delayedIface{Iface: i.Iface, rounds: max(rounds, 1)}
	}})
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
