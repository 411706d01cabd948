package provider

import (
	"sync"
	"sync/atomic"
)

// ownerTable finds what a completion is of by the user index in a CQE: a QP, or an XRC
// SRQ. A basic SRQ has none: what consumes one of its entries carries the index of the
// QP, through which the SRQ is found. Pollers read the table without a lock. Adding and
// removing take constant time, but for the growth of the table.
type ownerTable struct {
	slots atomic.Pointer[ownerSlots] // nil while the table was never used; replaced when it grows

	mu   sync.Mutex
	free []uint32 // indexes below next that are not in use
	next uint32   // the first index that was never used; 0 stands for firstUserIndex
}

// ownerSlots is owners by index; nil where there is none.
type ownerSlots []atomic.Pointer[owner]

// owner is one of both, or neither.
type owner struct {
	qp  *queuePair
	srq *sharedRecv
}

// firstUserIndex leaves 0 out, which a device might write by mistake.
const firstUserIndex = 1

// minOwners is how many indexes a table has room for at first.
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

// room returns slots that have one for index i. A poller that still reads the slots before does not look for i.
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

// get returns what has index i.
func (t *ownerTable) get(i uint32) owner {
	if p := t.slots.Load(); p != nil && int(i) < len(*p) {
		if o := (*p)[i].Load(); o != nil {
			return *o
		}
	}
	return owner{}
}
