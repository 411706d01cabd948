package rccore

import (
	"github.com/gucx/gucx/internal/unordered"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// reserveStep is the number of CQ slots that an EP reserves at a time.
const reserveStep = 16

// admit is called by a post if PI-CI is not below Room. It returns the reason why the EP cannot post, or
// reserves slots and returns flags for the work request. It raises Room for the next posts, unless
// requests are pending.
func (e *EP) admit() (verbs.SendFlags, error) {
	if e.state != stateReady {
		return 0, e.err
	}
	if e.pending.Blocks() || !e.reserveSlot() {
		return 0, uct.ErrNoResource
	}
	var flags verbs.SendFlags
	if e.fenced {
		e.fenced = false
		flags = verbs.SendFence
	}
	if e.pending.Empty() {
		e.Room = uint64(e.cqSlots)
	}
	return flags, nil
}

// reserveSlot reports whether one more work request can be posted. If necessary, it reserves CQ slots and
// places in the queue of the link.
func (e *EP) reserveSlot() bool {
	used := e.PI - e.CI
	if used < uint64(e.cqSlots) {
		return true
	}
	it := e.it
	want := min(reserveStep, it.cfg.TxDepth-int(e.cqSlots))
	if want <= 0 {
		return false
	}
	if it.cqFree == 0 {
		it.reclaim()
	}
	if it.slotsInUse {
		want = 1 // few slots are free: leave them to other EPs
	}
	got := e.link.Reserve(min(want, it.cqFree))
	if got == 0 && it.cqFree > 0 {
		it.reclaim()
		got = e.link.Reserve(min(want, it.cqFree))
	}
	if got == 0 {
		return false
	}
	it.reserveSlots(e, got)
	it.slotsInUse = it.slotsInUse && got == 1
	return true
}

// reclaim releases the reserved CQ slots that EPs do not use. It visits only EPs with reserved slots. If
// slotsInUse is set, there are no unused ones and it returns at once.
func (it *Iface) reclaim() {
	if it.slotsInUse {
		return
	}
	it.slotsInUse = true
	it.raise(attnPending) // completions free slots, and runDeferred must then clear slotsInUse
	for i := len(it.reservers) - 1; i >= 0; i-- {
		e := it.reservers[i]
		it.releaseSlots(e, int(e.cqSlots)-int(e.PI-e.CI))
		e.Room = min(e.Room, uint64(e.cqSlots))
	}
}

// reserveSlots reserves n CQ slots for e, which has reserved n places in the queue of its link.
func (it *Iface) reserveSlots(e *EP, n int) {
	it.cqFree -= n
	if e.cqSlots == 0 {
		e.reservedIndex = uint32(len(it.reservers))
		it.reservers = append(it.reservers, e)
	}
	e.cqSlots += uint32(n)
}

// releaseSlots releases n of the CQ slots that e has reserved, and as many places in the queue of its
// link.
func (it *Iface) releaseSlots(e *EP, n int) {
	it.cqFree += n
	e.link.Unreserve(n)
	if e.cqSlots == 0 {
		return
	}
	if e.cqSlots -= uint32(n); e.cqSlots == 0 {
		unordered.Remove(&it.reservers, int(e.reservedIndex)).reservedIndex = e.reservedIndex
	}
}

// signal returns the flag of the next work request, before PI counts it.
func (e *EP) signal() verbs.SendFlags {
	if e.PI == e.CI || e.PI-e.Sig >= e.it.Moderation {
		e.Sig = e.PI + 1
		return verbs.SendSignaled
	}
	return 0
}

// opSignal is signal for a work request with a completion of the user: it is also signaled if no
// signaled one is in flight. If one is, Retire posts another one when that completes.
func (e *EP) opSignal() verbs.SendFlags {
	e.lastCompPI = e.PI + 1
	return e.joinSignal(e.PI)
}

// joinSignal is opSignal for a work request after pi that the waiter includes. The waiter records it in
// sn, so wanted is not set.
func (e *EP) joinSignal(pi uint64) verbs.SendFlags {
	if sig := e.Sig; sig <= e.CI || pi-sig >= e.it.Moderation {
		e.Sig = pi + 1
		return verbs.SendSignaled
	}
	return 0
}

// ownSignal is opSignal for a zero-copy message: the work request is always signaled, because the sender
// may compute before it polls again.
func (e *EP) ownSignal() verbs.SendFlags {
	e.Sig = e.PI + 1
	return verbs.SendSignaled
}

// post sets the ID of wr and posts it.
func (e *EP) post(wr *[1]verbs.SendWR) error {
	e.PI++
	wr[0].ID = e.PI
	if _, err := e.send.PostSend(wr[:]); err != nil {
		return e.failPost(err)
	}
	return nil
}

// failPost handles an error of PostSend. The EP tracks queues and states, so its state differs
// from that of the device, and the EP fails. The device never completes the work request, so PI
// does not count it.
//
//go:noinline
func (e *EP) failPost(err error) error {
	e.PI--
	e.Sig = min(e.Sig, e.PI)
	e.it.fail(e, ucs.StatusInternal, err)
	return e.err
}

// resetOtherWR clears the work request in it.otherWR, sets opcode and flags, and returns it.
func (it *Iface) resetOtherWR(op verbs.Opcode, flags verbs.SendFlags) *verbs.SendWR {
	wr := &it.otherWR[0]
	*wr = verbs.SendWR{Opcode: op, Flags: flags}
	return wr
}

// postNop posts a signaled RDMA write of 0 bytes: when it completes, all work requests before it
// are complete. It does not wait for pending requests.
func (e *EP) postNop() error {
	if !e.reserveSlot() {
		return uct.ErrNoResource
	}
	e.it.resetOtherWR(verbs.OpRDMAWrite, verbs.SendSignaled)
	e.Sig = e.PI + 1
	return e.post(&e.it.otherWR)
}
