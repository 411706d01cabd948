//go:build race

package provider

import (
	"runtime"
	"sync/atomic"
)

// Guard detects concurrent calls where there is no lock: posts
// in one thread domain, to one QP or to two that share its register, and
// polls of one single-threaded queue. Its flag does not synchronize for the
// race detector, which still reports goroutines that take turns without
// synchronization. The zero value is ready.
type Guard struct{ busy atomic.Bool }

// Enter reports whether no other goroutine is between Enter and Leave. If it returns true, the caller must call Leave.
func (g *Guard) Enter() bool {
	runtime.RaceDisable()
	defer runtime.RaceEnable()
	return g.busy.CompareAndSwap(false, true)
}

// Leave ends the section that Enter began.
func (g *Guard) Leave() {
	runtime.RaceDisable()
	defer runtime.RaceEnable()
	g.busy.Store(false)
}
