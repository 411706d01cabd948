package sm

import (
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/uct"
)

// The state word of a control block. Its owner sets bits. A peer with an event
// clears the armed bits after it has written to the owner's pipe: if it is
// killed in between, the next peer wakes the owner again. The counter prevents a
// late peer from clearing bits that were armed again in the meantime.
const (
	stateRecv      = 1 << 0 // wake the owner when a message arrives
	stateSend      = 1 << 1 // wake the owner when slots or segments that it has sent are free
	stateAttention = 1 << 2 // set the attention word with each message
	stateFenced    = 1 << 3 // peers must execute a full barrier before they load the state: the owner cannot use membarrier
	stateOften     = 1 << 4 // the same, temporarily: the owner sleeps too often for membarrier; see countSleep
	stateCount     = 1 << 8 // counts the calls of Arm in bits 8..31

	stateArmed = stateRecv | stateSend

	// The bits that a peer checks after a message, and after it has returned slots.
	stateNotify = stateRecv | stateAttention | stateOften
	stateReturn = stateSend | stateOften
)

// wakePeer wakes the owner of the control block if one of the bits in the argument what is armed.
//
//go:noinline
func wakePeer(c *control, what uint32, fd int) {
	s := c.state.Load()
	if s&what == 0 {
		return
	}
	if attach.Wake(fd) != nil {
		return // the peer is gone, which the link detects
	}
	c.state.CompareAndSwap(s, s&^stateArmed)
}

// alwaysWake replaces the state of a peer that needs a full barrier before each load of its state.
var alwaysWake atomic.Uint32

func init() { alwaysWake.Store(stateSend) }

// wakeSender wakes the peer if it waits for slots or segments. A full barrier orders their release before the load of
// its state: see membarrier.go.
//
//go:noinline
func (l *inLink) wakeSender() {
	l.it.barrier()
	wakePeer(l.ctl, stateSend, l.wakeFD)
}

// After 8 sleeps, each within 1 ms of the previous one, an iface sets stateOften: its peers execute barriers
// themselves. membarrier takes 14 us if another CPU runs a registered process, as measured with
// gRPC over ucpnet; a barrier takes about 10 ns. So a peer that has sent 1,000 messages between two sleeps
// clears the bit.
const (
	oftenWithin   = time.Millisecond
	oftenSleeps   = 8
	oftenMessages = 1000
)

// countSleep counts a sleep, and sets stateOften after many. When it returns, every message that a peer published before
// it loaded the state without stateOften is visible.
func (it *iface) countSleep() {
	if !it.md.expedited || it.ctl.state.Load()&stateOften != 0 {
		return
	}
	now := time.Now()
	if now.Sub(it.lastSleep) > oftenWithin {
		it.sleeps = 0
	}
	it.lastSleep = now
	if it.sleeps++; it.sleeps >= oftenSleeps {
		it.sleeps = 0
		it.ctl.state.Or(stateOften)
		barrier()
	}
}

// recheckState returns the state of the peer, loaded after a full barrier. It clears stateOften if the peer sleeps too
// rarely.
func (l *outLink) recheckState() uint32 {
	l.it.barrier()
	s := l.ctl.state.Load()
	if sleeps := s / stateCount; sleeps != l.sleepsSeen {
		l.sleepsSeen, l.sentAwake = sleeps, 0
	}
	// While the peer is armed, it relies on the bit.
	if l.sentAwake++; l.sentAwake > oftenMessages && s&stateArmed == 0 && l.ctl.state.CompareAndSwap(s, s&^stateOften) {
		l.sentAwake = 0
	}
	return s
}

// EventFD implements uct.Waker.
func (it *iface) EventFD() int { return it.waker.FD() }

// EventPending implements uct.EventPender. After Arm, only a peer with an event and the
// owner itself change the state. A peer changes it just after it has made
// the descriptor readable.
func (it *iface) EventPending() bool {
	return it.ctl.state.Load() != it.armed || it.events.Load()&eventPosted != 0
}

// Arm implements uct.Waker.
func (it *iface) Arm(ev uct.Events) error {
	it.waker.Drain()
	var bits uint32
	if ev&uct.EventRecv != 0 {
		bits |= stateRecv
	}
	if ev&uct.EventSendComp != 0 || it.arb.Len() > 0 || it.opsWait {
		bits |= stateSend
	}
	it.countSleep()
	for {
		old := it.ctl.state.Load()
		it.armed = (old&^stateArmed | bits) + stateCount
		if it.ctl.state.CompareAndSwap(old, it.armed) {
			break
		}
	}
	if it.md.expedited && it.armed&stateOften == 0 {
		barrier() // pairs with the peers' load of the state after a message
	}
	if it.busy() {
		it.disarm()
		return uct.ErrBusy
	}
	return nil
}

// StillArmed implements uct.ArmChecker. Peers wake the owner for messages and returned slots. Operations or requests
// that wait may depend on more.
func (it *iface) StillArmed() bool { return it.events.Load() == 0 }

func (it *iface) disarm() {
	it.ctl.state.CompareAndSwap(it.armed, it.armed&^stateArmed)
	it.armed = it.ctl.state.Load()
}

// busy reports whether Progress has work.
func (it *iface) busy() bool {
	if it.events.Load()&eventPosted != 0 || it.arrived() {
		return true
	}
	for _, e := range it.open.All() {
		if e.hasReply() || !e.pending.Empty() && e.room() {
			return true
		}
	}
	return false
}

// arrived reports whether a message has arrived. It sets the attention words of such links, so that Progress polls them
// also if the peer has not set its word.
func (it *iface) arrived() (any bool) {
	for _, l := range it.in {
		if l.rx.waiting() {
			it.ctl.attention[l.attnIdx].Store(1)
			any = true
		}
	}
	return any
}

// post makes Progress handle events. Any goroutine may call it.
func (it *iface) post() {
	it.events.Or(eventPosted)
	_ = attach.Wake(it.waker.WakeFD()) // cannot fail: the descriptor is open
}
