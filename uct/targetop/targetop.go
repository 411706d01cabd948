// Package targetop holds what the target of one-sided operations does for a peer that
// cannot do it itself: it checks what was asked for, and executes it. Whatever comes
// from the peer may be made up. Nothing here allocates, blocks or locks: the caller
// keeps the memory from being freed meanwhile.
package targetop

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// Offset is where [raddr, raddr+n) starts in memory of length bytes whose first byte
// peers know as addr; ok is false if the range is not inside.
func Offset(length int, addr, raddr uint64, n int) (off int, ok bool) {
	o := raddr - addr // beyond any length if raddr is before
	return int(o), o <= uint64(length) && uint64(n) <= uint64(length)-o
}

// Atomic is an atomic operation as a peer asks for it.
type Atomic struct {
	Op      uct.AtomicOp
	Size    int // 4 or 8 bytes
	Raddr   uint64
	Value   uint64
	Compare uint64 // of AtomicCSwap
}

// Valid reports whether there is such an operation, at an address that is a multiple
// of its size.
func (a *Atomic) Valid() bool {
	return memop.CheckAtomic(memop.FetchOps, a.Op, a.Size, a.Raddr) == nil
}

// Do executes a on mem, whose first byte peers know as addr, and returns the old value.
// StatusRemoteInvalid: there is no such operation. StatusRemoteAccess: it is not inside.
// It is atomic with the CPU atomics of every process that maps the memory.
func (a *Atomic) Do(mem []byte, addr uint64) (old uint64, st ucs.Status) {
	if !a.Valid() {
		return 0, ucs.StatusRemoteInvalid
	}
	off, ok := Offset(len(mem), addr, a.Raddr, a.Size)
	if !ok {
		return 0, ucs.StatusRemoteAccess
	}
	return a.apply(mem[off : off+a.Size])
}
