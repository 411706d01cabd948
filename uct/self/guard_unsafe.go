package self

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/mmio"
)

// guard tells who closes memory, on another goroutine, whether an operation of an
// iface is in the middle of an access. The iface's goroutine alone writes the word: it
// is odd during a visit, and no two visits in a row show the same value.
type guard struct {
	word   atomic.Uint32
	fenced bool // membarrier does not work here
}

// enter precedes the look at the key; pairs with the barrier in MD.visitors. What it
// returns is for leave.
func (g *guard) enter() (before uint32) {
	before = g.word.Load()
	if g.fenced {
		g.word.Store(before | 1)
		return before
	}
	// The word is 4 bytes, aligned, and lives as long as g.
	mmio.StoreRelease32(unsafe.Pointer(&g.word), before|1)
	return before
}

// leave follows the last access; pairs with the load in visit.over.
func (g *guard) leave(before uint32) { mmio.StoreRelease32(unsafe.Pointer(&g.word), before+2) }

// visit is one that was seen under way.
type visit struct {
	g    *guard
	seen uint32
}

// over reports whether the visit has ended.
func (v visit) over() bool { return v.g.word.Load() != v.seen }

// Commands of membarrier(2), from the uapi header linux/membarrier.h.
const (
	membarrierPrivateExpedited         = 1 << 3
	membarrierRegisterPrivateExpedited = 1 << 4
)

// expedited says whether barrier works here: an operation stores its guard and then
// loads the key, and a full barrier between the two would cost it more than all the
// rest. Instead who closes memory, which is rare, makes every thread pass one.
var expedited = sync.OnceValue(func() bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterPrivateExpedited, 0, 0)
	return errno == 0 && barrier()
})

// barrier makes every running thread of the process pass a full barrier.
func barrier() bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierPrivateExpedited, 0, 0)
	return errno == 0
}
