package memtp

import (
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// one is the value that is added to an eventfd. It is not 0 in either byte order.
var one = [8]byte{1}

// EventFD implements uct.Waker.
func (i *Iface) EventFD() int { return i.event }

// Arm implements uct.Waker. It returns ErrBusy if an operation can be executed, because only Progress executes
// operations.
func (i *Iface) Arm(ev uct.Events) error {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	if i.raised || ev&uct.EventRecv != 0 && (i.rx.filled.n > 0 || i.filled > 0) || i.executable() {
		return uct.ErrBusy
	}
	i.armed |= ev
	return nil
}

// StillArmed implements uct.ArmChecker.
func (i *Iface) StillArmed() bool {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	return i.raised || i.armed == uct.EventRecv|uct.EventSendComp && !i.executable()
}

// executable reports whether Progress would execute an operation, dispatch a request or fail an EP. The caller holds
// world.mu.
func (i *Iface) executable() bool {
	for _, e := range i.eps.All() {
		if e.tx.n > 0 && e.ready(e.tx.head()) || e.canSend() || e.peerStatus() != ucs.StatusOK {
			return true
		}
	}
	return false
}

// EventPending implements uct.EventPender.
func (i *Iface) EventPending() bool {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	return i.raised
}

// signal raises the event if one of ev is armed. The caller holds world.mu.
func (i *Iface) signal(ev uct.Events) {
	if i.armed&ev == 0 {
		return
	}
	i.armed = 0
	i.raised = true
	// Cannot fail: the counter is written once between two reads and does not overflow.
	_, _ = unix.Write(i.event, one[:])
}

// clearEvent reads the eventfd if the event was raised.
func (i *Iface) clearEvent() {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	if !i.raised {
		return
	}
	i.raised = false
	var count [8]byte
	_, _ = unix.Read(i.event, count[:]) // does not block, because the event was raised
}
