// Package targetop executes one-sided operations at the target, for a peer without direct access to the
// memory. It checks all arguments, because the peer is untrusted. It does not allocate, block or lock: the caller
// must ensure that the memory is not freed during a call.
package targetop

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// Offset returns the offset of [raddr, raddr+n) in memory of length bytes, whose first byte has the address
// addr for peers; ok is false if the range is not in the memory.
func Offset(length int, addr, raddr uint64, n int) (off int, ok bool) {
	o := raddr - addr // beyond any length if raddr is before
	return int(o), o <= uint64(length) && uint64(n) <= uint64(length)-o
}

// Atomic is an atomic operation that a peer has requested.
type Atomic struct {
	Op      uct.AtomicOp
	Size    int // 4 or 8 bytes
	Raddr   uint64
	Value   uint64
	Compare uint64 // of AtomicCSwap
}

// Valid reports whether the operation exists and its address is a multiple
// of its size.
func (a *Atomic) Valid() bool {
	return memop.CheckAtomic(memop.FetchOps, a.Op, a.Size, a.Raddr) == nil
}

// Do executes a on mem, whose first byte has the address addr for peers, and returns the old value.
// StatusRemoteInvalid: a is not valid. StatusRemoteAccess: the word is not in mem.
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
