//go:build race

package mlx5

import (
	"runtime"
	"sync/atomic"
)

// poster notices two goroutines that post in a thread domain at the same time,
// whether to one QP or to two that share the domain's register. The order that its
// flag makes is hidden from the race detector, which goes on to report goroutines
// that take turns without synchronizing.
type poster struct{ busy atomic.Bool }

func (p *poster) enter() bool {
	runtime.RaceDisable()
	defer runtime.RaceEnable()
	return p.busy.CompareAndSwap(false, true)
}

func (p *poster) leave() {
	runtime.RaceDisable()
	defer runtime.RaceEnable()
	p.busy.Store(false)
}
