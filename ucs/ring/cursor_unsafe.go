package ring

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/gucx/gucx/internal/mmio"
)

// Word is what a ring holds.
type Word interface{ ~uint32 | ~uint64 }

// cursor is a position that one side writes and the other reads, with what the
// writing side remembers of the other cursor, alone on its cache lines.
type cursor struct {
	_    cpu.CacheLinePad
	pos  uint64
	seen uint64 // the other side's pos, perhaps an old one; only the writer's
	_    cpu.CacheLinePad
}

// load reads pos from the other side; it pairs with publish.
func (c *cursor) load() uint64 { return atomic.LoadUint64(&c.pos) }

// publish writes pos: whoever loads it sees the slots written before. Sound by
// rule 1 of unsafe.Pointer: the address of an aligned field, used in the call.
func (c *cursor) publish(pos uint64) { mmio.StoreRelease64(unsafe.Pointer(&c.pos), pos) }

// turn is the sequence number of an MPSC slot.
type turn struct{ n uint64 }

// load pairs with publish.
func (t *turn) load() uint64 { return atomic.LoadUint64(&t.n) }

// publish hands the slot over, with the word written before.
func (t *turn) publish(n uint64) { mmio.StoreRelease64(unsafe.Pointer(&t.n), n) }
