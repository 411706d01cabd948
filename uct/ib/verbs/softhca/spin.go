package softhca

import (
	"runtime"
	"sync/atomic"
)

// spinLock is held for tens of nanoseconds at a time and never while blocking. A
// waiter yields, so that the holder runs even when there is one processor.
type spinLock struct{ held atomic.Uint32 }

func (l *spinLock) lock() {
	for !l.held.CompareAndSwap(0, 1) {
		runtime.Gosched()
	}
}

func (l *spinLock) tryLock() bool {
	return l.held.Load() == 0 && l.held.CompareAndSwap(0, 1)
}

func (l *spinLock) unlock() { l.held.Store(0) }
