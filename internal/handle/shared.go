package handle

import (
	"sync"
	"sync/atomic"
)

// Shared is a Table that any goroutine may use. Add and Remove lock a mutex; Find does not, and does not
// allocate. The zero value is empty.
type Shared[T any] struct {
	slots atomic.Pointer[[]atomic.Pointer[entry[T]]]

	mu    sync.Mutex
	table Table[*T]
}

// entry is a value with its handle.
type entry[T any] struct {
	handle uint64
	value  *T
}

// Add adds v, which is not nil, and returns its handle.
func (s *Shared[T]) Add(v *T) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.table.Add(v)
	s.slot(h).Store(&entry[T]{h, v})
	return h
}

// slot is the place of a handle. When the slice grows, it is replaced. A concurrent Find may still use the
// old one, which lacks values that are added later: their handles were not returned yet.
func (s *Shared[T]) slot(h uint64) *atomic.Pointer[entry[T]] {
	i := h & indexMask
	var old []atomic.Pointer[entry[T]]
	if p := s.slots.Load(); p != nil {
		old = *p
	}
	if i < uint64(len(old)) {
		return &old[i]
	}
	grown := make([]atomic.Pointer[entry[T]], max(16, 2*len(old)))
	for k := range old {
		grown[k].Store(old[k].Load())
	}
	s.slots.Store(&grown)
	return &grown[i]
}

// Find returns the value of a handle from an untrusted peer; nil if there is none.
// The value may be removed at the same time.
func (s *Shared[T]) Find(h uint64) *T {
	p := s.slots.Load()
	if p == nil {
		return nil
	}
	if i := h & indexMask; i < uint64(len(*p)) {
		if e := (*p)[i].Load(); e != nil && e.handle == h {
			return e.value
		}
	}
	return nil
}

// Remove removes the value of a handle; false if there is none.
func (s *Shared[T]) Remove(h uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.table.Remove(h) {
		return false
	}
	s.slot(h).Store(nil)
	return true
}
