package wrap

import (
	"fmt"

	"github.com/gucx/gucx/uct"
)

// Plan decides about a data operation before it is posted. n is the number of earlier operations of
// the EP. The owner of the iface calls it.
type Plan func(ep uct.EP, v uct.Variant, n int) Fault

// Fault is the decision of a plan. The zero value posts the operation.
type Fault struct {
	// Refuse is what the call returns: ErrNoResource, or another refusal that the
	// contract has for it.
	Refuse error
	// Break fails the EP for this reason, as a transport does: this call and all later calls
	// return ErrEPFailed, and the next Progress dispatches pending requests
	// and calls OnError. Operations in flight complete as in the transport below, or when the EP is
	// closed; the peer notices nothing before that.
	Break error
}

// Faults is a layer that lets operations and EPs fail as the plan says.
func Faults(plan Plan) Hooks {
	return Hooks{
		Iface: func(i *Iface) {
			f := &faultyIface{Iface: i.Iface, onError: i.OnError}
			i.Iface, i.OnError, i.Has.Guarded = f, f.failed, false
			i.HoldBack()
			if i.Has.Wake != nil {
				i.Has.Wake = &wakeUnless{i.Has.Wake, func() bool { return len(f.broken) > 0 }}
			}
		},
		EP: func(e *EP) {
			f := &faultyEP{EP: e.EP, outer: e, plan: plan}
			e.Intercept(f)
			e.EP = f
			if e.Has.Check != nil {
				e.Has.Check = &faultyChecker{e.Has.Check, f}
			}
		},
	}
}

// faultyIface reports EPs that a plan has broken.
type faultyIface struct {
	uct.Iface
	onError func(uct.EP, error)
	broken  []*faultyEP
}

// failed reports an EP that failed, in the transport or by the plan, once.
func (i *faultyIface) failed(ep uct.EP, err error) {
	e, ok := ep.(*EP).EP.(*faultyEP)
	if !ok || e.failed {
		return
	}
	e.failed = true
	if i.onError != nil {
		i.onError(ep, err)
	}
}

// Progress implements uct.Iface.
func (i *faultyIface) Progress() int {
	n := i.Iface.Progress()
	for len(i.broken) > 0 {
		e := i.broken[0]
		i.broken = i.broken[1:]
		n += e.fail()
	}
	return n
}

// faultyEP lets the plan decide about each operation.
type faultyEP struct {
	uct.EP
	outer  *EP
	plan   Plan
	posts  int   // operations that the plan has decided about
	err    error // what is returned since the EP broke
	reason error
	failed bool // OnError was called
	closed bool
}

// Before implements Interceptor.
func (e *faultyEP) Before(v uct.Variant) error {
	if e.err != nil {
		return e.err
	}
	f := e.plan(e.outer, v, e.posts)
	e.posts++
	if f.Break == nil || e.closed {
		return f.Refuse
	}
	e.reason, e.err = f.Break, fmt.Errorf("%w: %w", uct.ErrEPFailed, f.Break)
	if i, ok := e.outer.On.Iface.(*faultyIface); ok {
		i.broken = append(i.broken, e)
	}
	return e.err
}

// After implements Interceptor.
func (e *faultyEP) After(uct.Variant, int, error) {}

// fail reports the failure as the transport would.
func (e *faultyEP) fail() int {
	if e.closed {
		return 0
	}
	e.EP.PurgePending(func(r *uct.PendingReq) { _ = r.Func(r) }) // their posts see the failure
	if !e.closed {
		e.outer.On.OnError(e.outer, e.reason)
	}
	return 1
}

// Flush implements uct.EP.
func (e *faultyEP) Flush(c *uct.Completion) (bool, error) {
	if e.err != nil {
		return false, e.err
	}
	return e.EP.Flush(c)
}

// Fence implements uct.EP.
func (e *faultyEP) Fence() error {
	if e.err != nil {
		return e.err
	}
	return e.EP.Fence()
}

// AddPending implements uct.EP.
func (e *faultyEP) AddPending(r *uct.PendingReq) error {
	if e.err != nil {
		return e.err
	}
	return e.EP.AddPending(r)
}

// faultyChecker knows that the EP broke.
type faultyChecker struct {
	uct.Checker
	e *faultyEP
}

// Check implements uct.Checker.
func (k *faultyChecker) Check(c *uct.Completion) (bool, error) {
	if k.e.err != nil {
		return false, k.e.err
	}
	return k.Checker.Check(c)
}

// Close implements uct.EP.
func (e *faultyEP) Close() error {
	e.closed = true
	return e.EP.Close()
}

// wakeUnless returns ErrBusy from Arm while there is work that the transport does not know of.
type wakeUnless struct {
	uct.Waker
	busy func() bool
}

// Arm implements uct.Waker.
func (w *wakeUnless) Arm(ev uct.Events) error {
	if w.busy() {
		return uct.ErrBusy
	}
	return w.Waker.Arm(ev)
}
