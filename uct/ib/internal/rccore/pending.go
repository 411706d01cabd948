package rccore

import "github.com/gucx/gucx/uct"

// AddPending implements uct.EP.
func (e *EP) AddPending(r *uct.PendingReq) error {
	if e.state != stateReady {
		return e.err
	}
	if e.pending.Empty() && e.hasResources() {
		return uct.ErrBusy
	}
	if err := e.it.arb.Add(&e.pending, r); err != nil {
		return err
	}
	e.Room = 0
	e.it.raise(attnPending)
	return nil
}

// hasResources reports whether an operation of every kind could be posted now.
func (e *EP) hasResources() bool {
	it := e.it
	if e.Credits <= 0 || it.tx.Free() == 0 || it.ops.freeCount == 0 || !e.reserveSlot() {
		return false
	}
	it.slotsInUse = false // the caller may not use the slot
	return true
}

// HasResources implements base.Gate: every work request needs a slot in the CQ.
func (it *Iface) HasResources() bool {
	if it.cqFree == 0 {
		it.reclaim()
	}
	return it.cqFree > 0
}

// PurgePending implements uct.EP.
func (e *EP) PurgePending(f func(*uct.PendingReq)) {
	e.it.arb.Purge(&e.pending, f)
}
