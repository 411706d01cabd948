package spin

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
)

// Release is Unlock for a lock whose holders read no other state afterwards: a
// release store, which on amd64 does not wait for earlier stores. With Unlock, later loads
// are executed after the lock is visibly free. The pointer is to a field of l, an
// atomic.Uint32: four aligned bytes.
func (l *Mutex) Release() { mmio.StoreRelease32(unsafe.Pointer(&l.Held), 0) }

// Section is a lock whose holder reports quiescent states, in which it has no pointer into
// registered memory. A thread that revokes memory waits for the next such state, and not until the
// lock is free, which may be rare under load.
type Section struct {
	Mutex
	passed atomic.Uint32 // number of quiescent states; only the holder writes it
}

// Quiescent reports a quiescent state. A full barrier must follow before the holder reads the next
// key: otherwise the load could precede this store, and the holder would miss a revocation.
func (s *Section) Quiescent() { mmio.StoreRelease32(unsafe.Pointer(&s.passed), s.passed.Load()+1) }

// Grace returns when the holder of the section has none of the pointers any more that it had at the
// call. The revocation that prevents new ones must have been stored atomically before.
func (s *Section) Grace() {
	for seen := s.passed.Load(); s.Held.Load() != 0 && s.passed.Load() == seen; {
		runtime.Gosched()
	}
}
