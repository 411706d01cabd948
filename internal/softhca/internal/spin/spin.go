// Package spin has spin locks for critical sections of a few instructions.
package spin

import (
	"runtime"
	"sync/atomic"
)

// Mutex is held for tens of nanoseconds at a time and never while blocking. A
// waiter yields, so that the holder can run if there is only one CPU.
type Mutex struct{ Held atomic.Uint32 }

// Lock waits until the lock is free and takes it.
func (l *Mutex) Lock() {
	for !l.Held.CompareAndSwap(0, 1) {
		runtime.Gosched()
	}
}

// TryLock takes the lock if it is free, and reports whether it was.
func (l *Mutex) TryLock() bool {
	return l.Held.Load() == 0 && l.Held.CompareAndSwap(0, 1)
}

// Unlock frees the lock. It is a full barrier.
func (l *Mutex) Unlock() { l.Held.Store(0) }
