package ucttest

import (
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// wrapped opens domains with a layer around them.
func wrapped(open func() (uct.MD, error), layers ...wrap.Hooks) func() (uct.MD, error) {
	return func() (uct.MD, error) {
		md, err := open()
		if err != nil {
			return nil, err
		}
		return wrap.Domain(md, layers...), nil
	}
}

// beforeEach is called before every data operation of an EP.
type beforeEach func()

// Before implements wrap.Interceptor.
func (f beforeEach) Before(uct.Variant) error { f(); return nil }

// After implements wrap.Interceptor.
func (f beforeEach) After(uct.Variant, int, error) {}

// hook is told when the completion of an operation fires, and then tells the user.
// A post without completion has none.
type hook struct {
	uct.Completion
	user *uct.Completion
}

// hooked returns a completion that calls then, which may call fire.
func hooked(user *uct.Completion, then func(*hook)) *uct.Completion {
	if user == nil {
		return nil
	}
	h := &hook{user: user}
	h.Count = 1
	h.Func = func(*uct.Completion) { then(h) }
	return &h.Completion
}

// fire completes the user's completion.
func (h *hook) fire() { h.user.Complete(h.Status) }
