package mlx5

import (
	"sync"
	"sync/atomic"
)

// ownerTable finds what a completion is of by the user index in a CQE: a QP, or an XRC
// SRQ. A basic SRQ has none: what consumes one of its entries carries the index of the
// QP, through which the SRQ is found. Pollers read the table without a lock; changes
// replace it.
type ownerTable struct {
	mu   sync.Mutex
	list atomic.Pointer[[]owner]
}

// owner is one of both, or neither.
type owner struct {
	qp  *queuePair
	srq *sharedRecv
}

// firstUserIndex leaves 0 out, which a device might write by mistake.
const firstUserIndex = 1

func (t *ownerTable) add(o owner) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.copy()
	for i := firstUserIndex; i < len(list); i++ {
		if list[i] == (owner{}) {
			list[i] = o
			t.list.Store(&list)
			return uint32(i)
		}
	}
	for len(list) < firstUserIndex {
		list = append(list, owner{})
	}
	list = append(list, o)
	t.list.Store(&list)
	return uint32(len(list) - 1)
}

func (t *ownerTable) copy() []owner {
	if p := t.list.Load(); p != nil {
		return append([]owner(nil), *p...)
	}
	return nil
}

func (t *ownerTable) remove(i uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.copy()
	list[i] = owner{}
	t.list.Store(&list)
}

// get returns what has index i.
func (t *ownerTable) get(i uint32) owner {
	if p := t.list.Load(); p != nil && int(i) < len(*p) {
		return (*p)[i]
	}
	return owner{}
}
