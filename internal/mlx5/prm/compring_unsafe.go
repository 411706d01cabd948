package prm

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/ucs"
)

// CompRing is the consumer of a completion queue. One goroutine at a time may use
// it. The consumer reads an entry in four steps: Peek, Owned or Sent, Take, and the fields. After the last entry
// of a poll it calls Give.
type CompRing struct {
	CQView
	ci        uint32
	passLog2  uint8 // number of the bit of ci that is the pass bit
	hardware  bool
	dbrec     DBRec
	watch     ucs.Watch // on the entry at ci
	attention *uint32
	device    Pollable // nil on hardware
}

// noAttention is the attention word of a device that the consumer need not drive.
var noAttention uint32

// neverTail is a last word, in big-endian order, that no CQE has: opcode 15 of an entry that was never
// written, with all other bits set.
const neverTail = 1<<32 - 1

// NewCompRing returns the consumer of v at consumer index 0. device is a device in software, which the polling thread
// drives; it is nil on hardware, for which the consumer needs fences.
func NewCompRing(v CQView, dbrec DBRec, hardware bool, device Pollable) CompRing {
	c := CompRing{CQView: v, passLog2: uint8(bits.TrailingZeros32(v.Count())), dbrec: dbrec, hardware: hardware}
	c.watch = ucs.Watch{Word: c.Slot(0).TailWord(), Quiet: neverTail}
	c.Follow(device)
	return c
}

// Follow makes polls drive d; nil means no device.
func (c *CompRing) Follow(d Pollable) {
	c.device, c.attention = d, &noAttention
	if d != nil {
		c.attention = d.Attention()
	}
	c.watch.Attention = c.attention
}

// CI is the consumer index.
func (c *CompRing) CI() uint32 { return c.ci }

// Watch is idle while the entry at the consumer index has not been written and the
// device needs no driving.
func (c *CompRing) Watch() *ucs.Watch { return &c.watch }

// Idle reports whether the watch is idle.
func (c *CompRing) Idle() bool { return c.watch.Idle() }

// Device returns the device that polls drive; nil if there is none.
func (c *CompRing) Device() Pollable { return c.device }

// Drive drives a software device if its attention word is set.
func (c *CompRing) Drive() {
	if atomic.LoadUint32(c.attention) != 0 {
		c.device.Drive()
	}
}

// Peek returns the entry at the consumer index and its last word, which contains the owner. The load of the
// word pairs with the device's store.
func (c *CompRing) Peek() (*CQESlot, Tail) {
	s := c.Slot(c.ci)
	return s, Tail(swap32(atomic.LoadUint32(&s.tail)))
}

// Sent reports whether the entry at the consumer index, whose last word is t, belongs to software and is a
// successful send: opcode 0, and the owner bit of this pass.
func (c *CompRing) Sent(t Tail) bool {
	return (uint32(t)^c.ci>>(c.passLog2&31)&1)&(0xf<<cqeOpcodeShift|cqeOwnerBit) == 0
}

// Owned reports whether the entry at the consumer index, whose last word is t, belongs to software.
func (c *CompRing) Owned(t Tail) bool { return t.Owned(c.Owner(c.ci)) }

// Take advances the consumer index past an entry that belongs to software. The caller can read the rest of the
// entry until Give.
func (c *CompRing) Take() {
	if c.hardware {
		mmio.FromDevice()
	}
	c.ci++
}

// Wait makes the watch idle until the entry s, whose last word was t, changes.
func (c *CompRing) Wait(s *CQESlot, t Tail) {
	c.watch.Word, c.watch.Quiet = s.TailWord(), swap32(uint32(t))
}

// LookAgain makes the next poll read the entries even if the watch is idle.
func (c *CompRing) LookAgain() { c.watch.Quiet = neverTail }

// Give returns the entries before the consumer index to the device. It is a release store:
// the device writes to them only after the earlier reads.
func (c *CompRing) Give() { c.dbrec.StoreCI(c.ci) }

// Waiting returns the number of entries that belong to software. The caller can then read all of them.
func (c *CompRing) Waiting() uint32 {
	n := uint32(0)
	for n < c.Count() && c.Slot(c.ci+n).Tail().Owned(c.Owner(c.ci+n)) {
		n++
	}
	if c.hardware && n > 0 {
		mmio.FromDevice()
	}
	return n
}

// Remove removes the entries of software for which gone returns true, and closes the gaps between the
// others. It calls gone once for each entry, last first.
func (c *CompRing) Remove(gone func(*CQESlot) bool) {
	freed := uint32(0)
	for n := c.Waiting(); n > 0; n-- {
		i := c.ci + n - 1
		s := c.Slot(i)
		if gone(s) {
			freed++
		} else if freed > 0 {
			s.moveTo(c.Slot(i+freed), c.Owner(i+freed))
		}
	}
	if freed > 0 {
		c.ci += freed
		c.Give()
	}
	c.LookAgain()
}

// ArmRecord stores to the doorbell record a request for an event at the next completion.
// sn is the number of events that were read. The caller must pass the result to RingArm.
func (c *CompRing) ArmRecord(sn uint32, solicitedOnly bool) uint32 {
	w := ArmWord(sn, solicitedOnly, c.ci)
	c.dbrec.StoreArm(w)
	return w
}

// RingArm stores an arm word and the queue's number to the CQ doorbell, which is in u.
func RingArm(u UAR, cqn, word uint32) {
	first8 := uint64(word)<<32 | uint64(cqn)
	var raw [8]byte
	be.PutUint64(raw[:], first8)
	if u.Doorbell == nil {
		mmio.ToDevice() // the doorbell record before the register
	}
	mmio.Doorbell64(unsafe.Add(u.Page, CQArm), binary.NativeEndian.Uint64(raw[:]))
	if u.Doorbell == nil {
		mmio.FlushWC()
		return
	}
	u.Doorbell.Ring(CQArm, first8)
}

// moveTo copies the CQE to another entry, whose pass bit is owner. Both entries belong to
// software.
func (s *CQESlot) moveTo(d *CQESlot, owner uint8) {
	d.body = s.body
	t := uint32(s.Tail())
	d.storeTail(t&^cqeOwnerBit | uint32(owner))
}
