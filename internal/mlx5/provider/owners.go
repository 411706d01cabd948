package provider

import (
	"sync"
	"sync/atomic"
)

// ownerTable maps the user index in a CQE to the owner of the completion: a QP, or an XRC
// SRQ. A basic SRQ has no index: completions that consume its entries have the index of the
// QP, which refers to the SRQ. Pollers read the table without a lock. Adding and
// removing take constant time, except when the table grows.
type ownerTable struct {
	slots atomic.Pointer[ownerSlots] // nil while the table was never used; replaced when it grows

	mu   sync.Mutex
	free []uint32 // indexes below next that are not in use
	next uint32   // the first index that was never used; 0 means firstUserIndex
}

// ownerSlots is owners by index; nil where there is none.
type ownerSlots []atomic.Pointer[owner]

// owner is a QP or an XRC SRQ, or neither.
type owner struct {
	qp  *queuePair
	srq *sharedRecv
}

// firstUserIndex is not 0, because a device might write 0 by mistake.
const firstUserIndex = 1

// minOwners is the initial size of a table.
const minOwners = 16

func (t *ownerTable) add(o owner) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := max(t.next, firstUserIndex)
	if last := len(t.free) - 1; last >= 0 {
		i, t.free = t.free[last], t.free[:last]
	} else {
		t.next = i + 1
	}
	t.room(i)[i].Store(&o)
	return i
}

// room returns slots that include index i. A poller may still read the previous slots, but finds no CQE with index
// i yet.
func (t *ownerTable) room(i uint32) ownerSlots {
	var old ownerSlots
	if p := t.slots.Load(); p != nil {
		old = *p
	}
	if int(i) < len(old) {
		return old
	}
	grown := make(ownerSlots, max(minOwners, 2*len(old)))
	for k := range old {
		grown[k].Store(old[k].Load())
	}
	t.slots.Store(&grown)
	return grown
}

// remove frees an index that add has returned.
func (t *ownerTable) remove(i uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	(*t.slots.Load())[i].Store(nil)
	t.free = append(t.free, i)
}

// get returns the owner with index i.
func (t *ownerTable) get(i uint32) owner {
	if p := t.slots.Load(); p != nil && int(i) < len(*p) {
		if o := (*p)[i].Load(); o != nil {
			return *o
		}
	}
	return owner{}
}
