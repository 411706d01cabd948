// Package hwfault makes calls of a device fail, for tests of what verbs and the
// InfiniBand transports do then. [Faults] fails one chosen call of prm.Hardware and counts
// the objects that the device has, so a test sees which objects a failed function left
// behind:
//
//	var f hwfault.Faults
//	dev := f.Device(softwareDevice, mlx5.Config{})
//	f.FailCall(3)              // the fourth call from here
//	_, err := open(dev)        // errors.Is(err, hwfault.ErrInjected)
//	f.Live()                   // empty, if open has destroyed what it made
package hwfault

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// ErrInjected is what a call returns that was chosen to fail.
var ErrInjected = errors.New("injected device error")

// Faults chooses the call that fails, and counts objects, for all opens of its devices
// together. The zero value fails nothing. Any goroutine may call its methods.
type Faults struct {
	mu    sync.Mutex
	armed bool
	left  int      // calls before the one that fails, while armed
	calls []string // since FailCall or FailNone
	live  map[string]int
}

// FailCall makes call i fail, counted from 0 and from now, once.
func (f *Faults) FailCall(i int) { f.restart(true, i) }

// FailNone fails no call any more, and counts calls from now.
func (f *Faults) FailNone() { f.restart(false, 0) }

func (f *Faults) restart(armed bool, left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.left, f.calls = armed, left, nil
}

// Injected reports whether the chosen call has failed since FailCall, and its name.
func (f *Faults) Injected() (call string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.armed && f.left < 0 {
		return f.calls[len(f.calls)+f.left], true
	}
	return "", false
}

// Calls names the calls since FailCall or FailNone, in order.
func (f *Faults) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

// Live counts the objects that were created and not destroyed, by kind; kinds without
// any are left out.
func (f *Faults) Live() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.live)
}

// enter notes a call, and returns ErrInjected if it is the one to fail. The device does
// not see that call.
func (f *Faults) enter(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	if !f.armed {
		return nil
	}
	f.left--
	if f.left == -1 {
		return fmt.Errorf("%s: %w", call, ErrInjected)
	}
	return nil
}

// count changes the number of live objects of a kind by n, unless err.
func (f *Faults) count(kind string, n int, err error) {
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live == nil {
		f.live = map[string]int{}
	}
	if f.live[kind] += n; f.live[kind] == 0 {
		delete(f.live, kind)
	}
}

// create is a call that makes one object of a kind.
func (f *Faults) create(call, kind string, do func() error) error {
	err := f.enter(call)
	if err == nil {
		err = do()
	}
	f.count(kind, 1, err)
	return err
}

// destroy is a call that destroys one.
func (f *Faults) destroy(call, kind string, do func() error) error {
	err := f.enter(call)
	if err == nil {
		err = do()
	}
	f.count(kind, -1, err)
	return err
}

// Device is dev with its calls through f. dev must be a software HCA without a model of
// time; cfg configures the driver of the queues.
func (f *Faults) Device(dev *verbs.Device, cfg mlx5.Config) *verbs.Device {
	return verbs.NewDevice(dev.Name(), func() (verbs.Provider, error) {
		ctx, err := dev.Open()
		if err != nil {
			return nil, err
		}
		inner := provider.HardwareOf(ctx).(software)
		hw := &hardware{software: inner, f: f, close: ctx.Close}
		f.count(kindDevice, 1, nil)
		p, err := provider.New(hw, cfg)
		if err != nil {
			return nil, errors.Join(err, hw.Close())
		}
		return p, nil
	})
}

// software is all that the software HCA implements.
type software interface {
	prm.Hardware
	prm.XRCHardware
	prm.RecvWatcher
	prm.Pollable
	prm.QueuePollable
	prm.Accountant
}
