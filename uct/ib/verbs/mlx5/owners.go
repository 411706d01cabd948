package mlx5

import (
	"sync"
	"sync/atomic"
)

// ownerTable finds QPs by the user index in a CQE. A basic SRQ has none: what consumes
// one of its entries carries the index of the QP, through which the SRQ is found. (An
// XRC SRQ would have an index of its own, as its completions carry that.) Pollers read
// the table without a lock; changes replace it.
type ownerTable struct {
	mu   sync.Mutex
	list atomic.Pointer[[]*queuePair]
}

// firstUserIndex leaves 0 out, which a device might write by mistake.
const firstUserIndex = 1

func (t *ownerTable) add(q *queuePair) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.copy()
	for i := firstUserIndex; i < len(list); i++ {
		if list[i] == nil {
			list[i] = q
			t.list.Store(&list)
			return uint32(i)
		}
	}
	for len(list) < firstUserIndex {
		list = append(list, nil)
	}
	list = append(list, q)
	t.list.Store(&list)
	return uint32(len(list) - 1)
}

func (t *ownerTable) copy() []*queuePair {
	if p := t.list.Load(); p != nil {
		return append([]*queuePair(nil), *p...)
	}
	return nil
}

func (t *ownerTable) remove(i uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.copy()
	list[i] = nil
	t.list.Store(&list)
}

// get returns the QP of index i; nil if there is none.
func (t *ownerTable) get(i uint32) *queuePair {
	if p := t.list.Load(); p != nil && int(i) < len(*p) {
		return (*p)[i]
	}
	return nil
}
