//go:build race

package provider

import (
	"runtime"
	"sync/atomic"
)

// Guard notices two goroutines that are at the same time where there is no lock: they
// post in one thread domain, whether to one QP or to two that share its register, or
// poll one single-threaded queue. The order that its flag makes is hidden from the
// race detector, which goes on to report goroutines that take turns without
// synchronizing. The zero value is free.
type Guard struct{ busy atomic.Bool }

// Enter reports whether no other goroutine is inside; then Leave must follow.
func (g *Guard) Enter() bool {
	runtime.RaceDisable()
	defer runtime.RaceEnable()
	return g.busy.CompareAndSwap(false, true)
}

// Leave lets others in.
func (g *Guard) Leave() {
	runtime.RaceDisable()
	defer runtime.RaceEnable()
	g.busy.Store(false)
}
