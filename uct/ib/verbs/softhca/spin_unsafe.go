package softhca

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
)

// release is unlock for a lock whose holders look at nothing else afterwards: a
// release store, which on amd64 waits for no earlier store. After unlock, a load is
// not done before the lock is seen to be free. The pointer is to a field of l, which
// is an atomic.Uint32: four aligned bytes.
func (l *spinLock) release() { mmio.StoreRelease32(unsafe.Pointer(&l.held), 0) }
