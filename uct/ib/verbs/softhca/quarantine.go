package softhca

import (
	"sync"
	"sync/atomic"
)

// quarantine has what was given back to the device while peers were in the middle of an
// access to it: memory of the device with its key, numbers of QPs. It is used again when
// they are out or dead. A guard names one region, so that there are at most as many
// regions in it as peers have QPs. Any goroutine.
type quarantine struct {
	h     *hca
	count atomic.Int32 // of list, to be read without the lock
	bytes atomic.Int64

	mu   sync.Mutex
	list []kept
}

// kept is what waits for visits to end.
type kept struct {
	inside []visit
	bytes  int64
	free   func()
}

// put calls free when the visits are over, now if there are none. n is how many bytes
// are kept until then.
func (q *quarantine) put(inside []visit, n int64, free func()) {
	if len(inside) == 0 {
		free()
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, kept{inside, n, free})
	q.count.Add(1)
	q.bytes.Add(n)
}

// release frees what it can. It is called whenever something is about to be allocated
// or has been given back, and when a peer is gone.
func (q *quarantine) release() {
	if q.count.Load() == 0 {
		return
	}
	for _, k := range q.take() {
		k.free()
	}
}

// take removes what nobody is inside of any more.
func (q *quarantine) take() (over []kept) {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.list[:0]
	for _, k := range q.list {
		if k.inside = q.h.ongoing(k.inside); len(k.inside) > 0 {
			left = append(left, k)
			continue
		}
		over = append(over, k)
		q.count.Add(-1)
		q.bytes.Add(-k.bytes)
	}
	clear(q.list[len(left):])
	q.list = left
	return over
}
