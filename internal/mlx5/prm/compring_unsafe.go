package prm

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/ucs"
)

// CompRing is a completion queue as its consumer reads it. One goroutine at a time uses
// it. An entry is read in four steps: Peek, Owned or Sent, Take, and then what it says;
// Give ends a poll.
type CompRing struct {
	CQView
	ci        uint32
	passLog2  uint8 // the bit of ci that tells passes apart
	hardware  bool
	dbrec     DBRec
	watch     ucs.Watch // on the entry at ci
	attention *uint32
	device    Pollable // nil on hardware
}

// noAttention is the attention word of a device that needs no driving.
var noAttention uint32

// neverTail is a last word that no CQE has, as it lies in memory: opcode 15, which is
// that of an entry never written, with everything else set.
const neverTail = 1<<32 - 1

// NewCompRing returns the ring of v at consumer index 0. device is what the polling thread
// drives; nil on hardware that sees stores by itself, for which the consumer needs
// fences.
func NewCompRing(v CQView, dbrec DBRec, hardware bool, device Pollable) CompRing {
	c := CompRing{CQView: v, passLog2: uint8(bits.TrailingZeros32(v.Count())), dbrec: dbrec, hardware: hardware}
	c.watch = ucs.Watch{Word: c.Slot(0).TailWord(), Quiet: neverTail}
	c.Follow(device)
	return c
}

// Follow has polls drive d; nil is nothing.
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

// Idle reports what the watch says.
func (c *CompRing) Idle() bool { return c.watch.Idle() }

// Device is what polls drive; nil if there is nothing.
func (c *CompRing) Device() Pollable { return c.device }

// Drive lets a software device advance if it wants to.
func (c *CompRing) Drive() {
	if atomic.LoadUint32(c.attention) != 0 {
		c.device.Drive()
	}
}

// Peek returns the entry at the consumer index with its last word, which says whose it
// is. The load pairs with the device's store of that word.
func (c *CompRing) Peek() (*CQESlot, Tail) {
	s := c.Slot(c.ci)
	return s, Tail(swap32(atomic.LoadUint32(&s.tail)))
}

// Sent reports whether t, of the entry at the consumer index, is software's and the
// success of a send: opcode 0, and the owner bit of this pass.
func (c *CompRing) Sent(t Tail) bool {
	return (uint32(t)^c.ci>>(c.passLog2&31)&1)&(0xf<<cqeOpcodeShift|cqeOwnerBit) == 0
}

// Owned reports whether t, of the entry at the consumer index, is software's.
func (c *CompRing) Owned(t Tail) bool { return t.Owned(c.Owner(c.ci)) }

// Take takes the entry at the consumer index, which is software's: the rest of it can
// be read, until Give.
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

// LookAgain makes the next poll read the entries, whatever the watch shows.
func (c *CompRing) LookAgain() { c.watch.Quiet = neverTail }

// Give gives the entries before the consumer index back to the device: a release store,
// so that what was read of them comes before the device's next write there.
func (c *CompRing) Give() { c.dbrec.StoreCI(c.ci) }

// Waiting is how many entries wait for Take; all of them can be read after it.
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

// Remove removes the entries that are software's for which gone says so, and moves those
// that stay together. gone is called once for each, last first.
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

// ArmRecord stores to the doorbell record that an event is wanted at the next completion.
// sn counts the events taken. RingArm follows, with what it returns.
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

// moveTo copies the CQE to another entry, whose pass bit is owner. Both belong to
// software.
func (s *CQESlot) moveTo(d *CQESlot, owner uint8) {
	d.body = s.body
	t := uint32(s.Tail())
	d.storeTail(t&^cqeOwnerBit | uint32(owner))
}
