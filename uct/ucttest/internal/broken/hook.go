package broken

import "github.com/gucx/gucx/uct"

// beforeEach is an interceptor that is called before every data operation of an EP.
type beforeEach func()

// Before implements wrap.Interceptor.
func (f beforeEach) Before(uct.Variant) error { f(); return nil }

// After implements wrap.Interceptor.
func (f beforeEach) After(uct.Variant, int, error) {}

// hook is the completion that a broken transport passes to the real one in place of the user's.
type hook struct {
	uct.Completion
	user *uct.Completion
}

// hooked returns a completion that calls then in place of user; then may call fire. It returns nil if user is nil.
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
