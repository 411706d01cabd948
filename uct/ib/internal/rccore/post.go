package rccore

import (
	"github.com/gucx/gucx/internal/unordered"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// leaseStep is how many CQ slots an EP takes at a time.
const leaseStep = 16

// admit is asked when a post finds no room: it says why the EP cannot post, or
// makes room, and returns flags for the work request. Posts that only wait for
// room are on the fast path again after it.
func (e *EP) admit() (verbs.SendFlags, error) {
	if e.state != stateReady {
		return 0, e.err
	}
	if e.pending.Blocks() || !e.slot() {
		return 0, uct.ErrNoResource
	}
	var flags verbs.SendFlags
	if e.fenced {
		e.fenced = false
		flags = verbs.SendFence
	}
	if e.pending.Empty() {
		e.Room = uint64(e.lease)
	}
	return flags, nil
}

// slot reports whether one more work request can be posted, leasing CQ slots, and
// places in the queue of the link, if it must.
func (e *EP) slot() bool {
	used := e.PI - e.CI
	if used < uint64(e.lease) {
		return true
	}
	it := e.it
	want := min(leaseStep, it.cfg.TxDepth-int(e.lease))
	if want <= 0 {
		return false
	}
	if it.cqFree == 0 {
		it.reclaim()
	}
	if it.leasesUsed {
		want = 1 // slots are scarce: others would have to reclaim what e does not use now
	}
	got := e.link.Reserve(min(want, it.cqFree))
	if got == 0 && it.cqFree > 0 {
		it.reclaim()
		got = e.link.Reserve(min(want, it.cqFree))
	}
	if got == 0 {
		return false
	}
	it.takeLease(e, got)
	it.leasesUsed = it.leasesUsed && got == 1
	return true
}

// reclaim takes back the CQ slots that EPs lease without using them. It visits the EPs that lease slots, of
// which there are at most as many as slots, however many EPs are open, and none if it found nothing to take
// since the last completion.
func (it *Iface) reclaim() {
	if it.leasesUsed {
		return
	}
	it.leasesUsed = true
	it.raise(attnPending) // completions change that, and finish must see them
	for i := len(it.leases) - 1; i >= 0; i-- {
		e := it.leases[i]
		it.returnLease(e, int(e.lease)-int(e.PI-e.CI))
		e.Room = min(e.Room, uint64(e.lease))
	}
}

// takeLease leases n CQ slots to e, which has reserved as many places in the queue of its link.
func (it *Iface) takeLease(e *EP, n int) {
	it.cqFree -= n
	if e.lease == 0 {
		e.leaseAt = uint32(len(it.leases))
		it.leases = append(it.leases, e)
	}
	e.lease += uint32(n)
}

// returnLease takes back n of the CQ slots that e leases, and places in the queue of its link.
func (it *Iface) returnLease(e *EP, n int) {
	it.cqFree += n
	e.link.Return(n)
	if e.lease == 0 {
		return
	}
	if e.lease -= uint32(n); e.lease == 0 {
		unordered.Remove(&it.leases, int(e.leaseAt)).leaseAt = e.leaseAt
	}
}

// signal returns the flag for the next work request, which is about to be counted.
func (e *EP) signal() verbs.SendFlags {
	if e.PI == e.CI || e.PI-e.Sig >= e.it.Moderation {
		e.Sig = e.PI + 1
		return verbs.SendSignaled
	}
	return 0
}

// opSignal is signal for a work request whose end somebody waits for: it also asks for a
// completion when none is on its way. Behind one that is, none is asked for; when that
// one arrives, Retire sees to it that another follows.
func (e *EP) opSignal() verbs.SendFlags {
	e.wanted = e.PI + 1
	return e.joinSignal(e.PI)
}

// joinSignal is opSignal for a work request behind pi that the waiter takes in, which knows
// what it waits for.
func (e *EP) joinSignal(pi uint64) verbs.SendFlags {
	if sig := e.Sig; sig <= e.CI || pi-sig >= e.it.Moderation {
		e.Sig = pi + 1
		return verbs.SendSignaled
	}
	return 0
}

// ownSignal is opSignal for a message, whose sender may compute before it polls: it asks for
// a completion always.
func (e *EP) ownSignal() verbs.SendFlags {
	e.Sig = e.PI + 1
	return verbs.SendSignaled
}

// post posts wr, which has everything but the number.
func (e *EP) post(wr *[1]verbs.SendWR) error {
	e.PI++
	wr[0].ID = e.PI
	if _, err := e.send.PostSend(wr[:]); err != nil {
		return e.postFailed(err)
	}
	return nil
}

// postFailed handles a refused post: queues and states are tracked here, so the
// device and the EP disagree, and the EP cannot go on. The device never completes
// the work request, so it is not counted as posted.
//
//go:noinline
func (e *EP) postFailed(err error) error {
	e.PI--
	e.Sig = min(e.Sig, e.PI)
	e.it.fail(e, ucs.StatusInternal, err)
	return e.err
}

// fullWR returns the work request with a gather list, cleared.
func (it *Iface) fullWR(op verbs.Opcode, flags verbs.SendFlags) *verbs.SendWR {
	wr := &it.full[0]
	*wr = verbs.SendWR{Opcode: op, Flags: flags}
	return wr
}

// postNop posts a signaled RDMA write of no bytes: its completion says that all
// before it is complete. It does not wait behind pending requests.
func (e *EP) postNop() error {
	if !e.slot() {
		return uct.ErrNoResource
	}
	e.it.fullWR(verbs.OpRDMAWrite, verbs.SendSignaled)
	e.Sig = e.PI + 1
	return e.post(&e.it.full)
}
