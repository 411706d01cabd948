package spin

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
)

// Release is Unlock for a lock whose holders read no other state afterwards: a
// release store, which on amd64 waits for no earlier store. After Unlock, a load is
// not done before the lock is seen to be free. The pointer is to a field of l, which
// is an atomic.Uint32: four aligned bytes.
func (l *Mutex) Release() { mmio.StoreRelease32(unsafe.Pointer(&l.Held), 0) }

// Section is a lock whose holder says, now and then, that it has no pointer into
// registered memory: who takes memory back need not wait until the lock is free,
// which may be rare under load.
type Section struct {
	Mutex
	passed atomic.Uint32 // how often it was said; only the holder writes
}

// Quiescent says so. A full barrier must come before the next look at a key: between
// that and a plain store the memory could be taken back unseen.
func (s *Section) Quiescent() { mmio.StoreRelease32(unsafe.Pointer(&s.passed), s.passed.Load()+1) }

// Grace returns when the holder of the section at the time of the call has no pointer
// any more that it had then. What denies new ones must have been stored atomically.
func (s *Section) Grace() {
	for seen := s.passed.Load(); s.Held.Load() != 0 && s.passed.Load() == seen; {
		runtime.Gosched()
	}
}
