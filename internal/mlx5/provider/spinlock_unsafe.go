package provider

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
)

// spinLock is held for tens of nanoseconds, never across a doorbell that may
// execute work. It costs one locked instruction where sync.Mutex costs two.
type spinLock struct{ held uint32 }

// spins is the number of attempts before a waiter yields its CPU: they take about as long as a
// post.
const spins = 8

func (l *spinLock) lock() {
	if !atomic.CompareAndSwapUint32(&l.held, 0, 1) {
		l.lockSlow()
	}
}

//go:noinline
func (l *spinLock) lockSlow() {
	for i := 1; ; i++ {
		if atomic.LoadUint32(&l.held) == 0 && atomic.CompareAndSwapUint32(&l.held, 0, 1) {
			return
		}
		if i%spins == 0 {
			runtime.Gosched()
		} else {
			mmio.Pause()
		}
	}
}

// unlock pairs with the compare-and-swap in lock.
func (l *spinLock) unlock() {
	mmio.StoreRelease32(unsafe.Pointer(&l.held), 0)
}
