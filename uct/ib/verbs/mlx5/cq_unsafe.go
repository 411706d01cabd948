package mlx5

import (
	"encoding/binary"
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
)

// ringArm stores the arm word and the CQ's number to the CQ doorbell.
func (c *compQueue) ringArm(word uint32) {
	first8 := uint64(word)<<32 | uint64(c.cqn)
	var raw [8]byte
	be.PutUint64(raw[:], first8)
	if c.hardware {
		mmio.ToDevice()
	}
	mmio.Doorbell64(unsafe.Add(c.uar.Page, CQArm), binary.NativeEndian.Uint64(raw[:]))
	if c.hardware {
		mmio.FlushWC()
	}
	if c.uar.Doorbell != nil {
		c.uar.Doorbell.Ring(CQArm, first8)
	}
}

// moveTo copies the CQE to another entry, whose pass bit is owner. Both belong to
// software.
func (s *CQESlot) moveTo(d *CQESlot, owner uint8) {
	copy(d[:60], s[:60])
	t := uint32(s.Tail())
	d.storeTail(t&^cqeOwnerBit | uint32(owner))
}
