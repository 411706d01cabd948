package dv

import (
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// register is the doorbell register of a thread domain. All QPs in it share it, and
// take turns with its two BlueFlame buffers, so that successive posts do not meet
// in one write-combining buffer.
type register struct {
	page     unsafe.Pointer // mapped as long as the thread domain lives
	off      uint32         // page offset of the buffer to use next
	step     uint32         // BlueFlame buffer length, or 0 without BlueFlame
	hardware bool           // a device that needs fences
	doorbell mlx5.Doorbell  // nil on hardware
}

func newRegister(u mlx5.RawUAR) *register {
	return &register{page: u.Page, off: u.Off, step: u.BFLen, hardware: u.Doorbell == nil, doorbell: u.Doorbell}
}

// is reports whether u is this register.
func (r *register) is(u mlx5.RawUAR) bool {
	return r.page == u.Page && r.off&^r.step == u.Off&^u.BFLen
}

// ringBB stores the WQE of one basic block, whose control word is word.
func (r *register) ringBB(word uint64, b *mlx5.BB) {
	off := r.off
	r.off = off ^ r.step
	reg := unsafe.Add(r.page, off)
	if r.doorbell != nil && r.step != 0 {
		mmio.Copy64(reg, unsafe.Pointer(b))
		r.doorbell.Ring(off, word)
		return
	}
	r.store(reg, b)
	r.told(off, word)
}

// store is ringBB for hardware, and for registers without BlueFlame.
func (r *register) store(reg unsafe.Pointer, b *mlx5.BB) {
	if r.hardware {
		mmio.ToDevice() // the doorbell record before the register
	}
	if r.step != 0 {
		mmio.Copy64(reg, unsafe.Pointer(b))
	} else {
		mmio.Doorbell64(reg, first8(b))
	}
	if r.hardware {
		mmio.FlushWC()
	}
}

// ringList stores the first 8 bytes of the last WQE of a list, at BB first of q; or
// all of it, if it is the only one and short.
func (r *register) ringList(word uint64, q *sendQueue, first uint32, only bool) {
	off := r.off
	r.off = off ^ r.step
	reg := unsafe.Add(r.page, off)
	if r.hardware {
		mmio.ToDevice()
	}
	ds := uint32(word) & dsMask
	if only && ds > 1 && ds*mlx5.SegLen <= r.step {
		for i := uint32(0); i*mlx5.SegsPerBB < ds; i++ {
			mmio.Copy64(unsafe.Add(reg, i*mlx5.BBLen), unsafe.Pointer(q.bb(first+i)))
		}
	} else {
		mmio.Doorbell64(reg, first8(q.bb(first)))
	}
	if r.hardware {
		mmio.FlushWC()
	}
	r.told(off, word)
}

// told tells a software device of the store.
func (r *register) told(off uint32, word uint64) {
	if r.doorbell != nil {
		r.doorbell.Ring(off, word)
	}
}

// first8 is the first 8 bytes as they lie in memory. A BB is aligned to 64 bytes.
func first8(b *mlx5.BB) uint64 { return *(*uint64)(unsafe.Pointer(b)) }
