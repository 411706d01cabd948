package sm

import (
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/uct"
)

// The state word of a control block. Its owner sets bits; a peer that has news
// clears the armed bits, after it has written to the owner's pipe: if it is
// killed in between, the next peer wakes the owner once more. The counter makes a
// peer that is late fail to clear what was armed again meanwhile.
const (
	stateRecv      = 1 << 0 // wake me when a message comes
	stateSend      = 1 << 1 // wake me when something that I sent was taken
	stateAttention = 1 << 2 // mark my attention word with each message
	stateFenced    = 1 << 3 // pass a full barrier before you look here: I cannot have you pass one; it stays
	stateOften     = 1 << 4 // the same, for now: I sleep too often to have you pass one each time; see noteSleep
	stateCount     = 1 << 8 // counts the Arms in bits 8..31

	stateArmed = stateRecv | stateSend

	// What a peer looks at after a message, and after it has given slots back.
	stateTell = stateRecv | stateAttention | stateOften
	stateGive = stateSend | stateOften
)

// wakePeer wakes the owner of the control block if it is armed for what.
//
//go:noinline
func wakePeer(c *control, what uint32, fd int) {
	s := c.state.Load()
	if s&what == 0 {
		return
	}
	if attach.Wake(fd) != nil {
		return // the peer is gone; its link will say so
	}
	c.state.CompareAndSwap(s, s&^stateArmed)
}

// alwaysLook is the state of a peer about which a look at its state alone says nothing.
var alwaysLook atomic.Uint32

func init() { alwaysLook.Store(stateSend) }

// wakeSender wakes the peer if it waits for slots or segments. They are free before the look at
// its state, which takes a full barrier where membarrier does not make one: see membarrier.go.
//
//go:noinline
func (l *inLink) wakeSender() {
	l.it.barrier()
	wakePeer(l.ctl, stateSend, l.wakeFD)
}

// An iface that sleeps at each of 8 waits within a millisecond each has its peers pass barriers by
// themselves: membarrier takes 14 us where another processor runs a registered process, as measured with
// gRPC over ucpnet, and a barrier about 10 ns. So a peer that has sent 1,000 messages between two sleeps
// ends it.
const (
	oftenWithin   = time.Millisecond
	oftenSleeps   = 8
	oftenMessages = 1000
)

// noteSleep counts a sleep, and sets stateOften when there are many. When it returns, each look of a peer
// at the state that was before stateOften was seen follows what the peer had published by then.
func (it *Iface) noteSleep() {
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

// lookAgain is the state of the peer behind a full barrier. It ends stateOften when the peer has slept too
// little for what it costs.
func (l *outLink) lookAgain() uint32 {
	l.it.barrier()
	s := l.ctl.state.Load()
	if sleeps := s / stateCount; sleeps != l.sleepsSeen {
		l.sleepsSeen, l.sentAwake = sleeps, 0
	}
	// An armed peer relies on the bit until it is awake.
	if l.sentAwake++; l.sentAwake > oftenMessages && s&stateArmed == 0 && l.ctl.state.CompareAndSwap(s, s&^stateOften) {
		l.sentAwake = 0
	}
	return s
}

// EventFD implements uct.Waker.
func (it *Iface) EventFD() int { return it.waker.FD() }

// EventPending implements uct.EventPender: nobody but a peer with news, and the
// owner itself, changes the state after Arm. A peer does so just after it has made
// the descriptor readable.
func (it *Iface) EventPending() bool {
	return it.ctl.state.Load() != it.armed || it.events.Load()&eventPosted != 0
}

// Arm implements uct.Waker.
func (it *Iface) Arm(ev uct.Events) error {
	it.waker.Drain()
	var bits uint32
	if ev&uct.EventRecv != 0 {
		bits |= stateRecv
	}
	if ev&uct.EventSendComp != 0 || it.arb.Len() > 0 || it.opsWait {
		bits |= stateSend
	}
	it.noteSleep()
	for {
		old := it.ctl.state.Load()
		it.armed = (old&^stateArmed | bits) + stateCount
		if it.ctl.state.CompareAndSwap(old, it.armed) {
			break
		}
	}
	if it.md.expedited && it.armed&stateOften == 0 {
		barrier() // pairs with the peers' look at the state after a message
	}
	if it.busy() {
		it.disarm()
		return uct.ErrBusy
	}
	return nil
}

func (it *Iface) disarm() {
	it.ctl.state.CompareAndSwap(it.armed, it.armed&^stateArmed)
	it.armed = it.ctl.state.Load()
}

// busy reports whether there is something that Progress would do.
func (it *Iface) busy() bool {
	if it.events.Load()&eventPosted != 0 || it.arrived() {
		return true
	}
	for _, e := range it.open.All() {
		if e.answerWaits() || !e.pending.Empty() && e.room() {
			return true
		}
	}
	return false
}

// arrived reports whether a link has something to look at, and has Progress look,
// also if the peer has not marked its word.
func (it *Iface) arrived() (any bool) {
	for _, l := range it.in {
		if l.rx.waiting() {
			it.ctl.attention[l.attnIdx].Store(1)
			any = true
		}
	}
	return any
}

// post sets a word for Progress. Any goroutine may call it.
func (it *Iface) post() {
	it.events.Or(eventPosted)
	_ = attach.Wake(it.waker.WakeFD()) // the own descriptor is open as long as somebody posts
}
