package dv

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// compQueue is the consumer of a completion queue.
type compQueue struct {
	view      mlx5.CQView
	ci        uint32
	watch     ucs.Watch // on the entry at ci
	dbr       mlx5.DBRec
	passLog2  uint8
	hardware  bool
	attention *uint32
	device    mlx5.Pollable // nil on hardware

	guard   *mlx5.Guard // of the polls
	cqn     uint32
	uar     mlx5.RawUAR
	events  *atomic.Uint32
	overrun *atomic.Bool
}

// calm is the attention word of a device that needs no driving, alarmed that of one
// that always does.
var calm, alarmed uint32 = 0, 1

// neverWord is a last word that no CQE has: opcode 15, which is that of an entry
// never written, with everything else set.
const neverWord = 1<<32 - 1

// open takes over the memory of a CQ.
func (c *compQueue) open(cq *verbs.CQ) error {
	raw, err := mlx5.RawCQOf(cq)
	if err != nil {
		return err
	}
	if c.view, err = mlx5.NewCQView(raw.CQEs.Buf, raw.CQEs.Count); err != nil {
		return err
	}
	c.passLog2 = uint8(bits.TrailingZeros32(raw.CQEs.Count))
	c.dbr, c.cqn, c.uar, c.events, c.overrun = raw.DBRec, raw.CQN, raw.UAR, raw.Events, raw.Overrun
	c.guard = raw.Guard
	c.hardware, c.attention, c.device = raw.UAR.Doorbell == nil, &calm, raw.Device
	if c.device != nil {
		c.attention = c.device.Attention()
	}
	c.watch = ucs.Watch{Word: tailWord(c.view.Slot(0)), Quiet: neverWord, Attention: c.attention}
	return nil
}

// pollAlways makes the watch restless for ever.
func (c *compQueue) pollAlways() { c.watch.Attention = &alarmed }

// tailWord is the last word of an entry, which passes ownership.
func tailWord(s *mlx5.CQESlot) *uint32 {
	return (*uint32)(unsafe.Pointer(&s[mlx5.CQELen-4]))
}

// drive lets a software device advance if it wants to.
func (c *compQueue) drive() {
	if atomic.LoadUint32(c.attention) != 0 {
		c.device.Drive()
	}
}

// peek returns the entry at ci with its last word, which says whose it is.
func (c *compQueue) peek() (*mlx5.CQESlot, mlx5.Tail) {
	s := c.view.Slot(c.ci)
	return s, mlx5.Tail(host32(atomic.LoadUint32(tailWord(s))))
}

// sent reports whether t is of an entry at ci that is software's, and is the success
// of a send: opcode 0, and the owner bit of this pass, which is bit passLog2 of ci.
func (c *compQueue) sent(t mlx5.Tail) bool {
	return (uint32(t)^c.ci>>(c.passLog2&31)&1)&(opcodeBits|ownerBit) == 0
}

const (
	opcodeBits = 0xf0
	ownerBit   = 0x01
)

// owned reports whether t is of an entry at ci that is software's.
func (c *compQueue) owned(t mlx5.Tail) bool { return t.Owned(c.view.Owner(c.ci)) }

// take takes the entry at ci, which is software's: the rest of it can be read, until
// give.
func (c *compQueue) take() {
	if c.hardware {
		mmio.FromDevice()
	}
	c.ci++
}

// wait makes the watch idle until the entry at ci, whose last word was t, changes.
func (c *compQueue) wait(s *mlx5.CQESlot, t mlx5.Tail) {
	c.watch.Word, c.watch.Quiet = tailWord(s), host32(uint32(t))
}

// host32 turns a big-endian word that was loaded as it lies in memory to host order,
// and back.
func host32(raw uint32) uint32 {
	if cpu.IsBigEndian {
		return raw
	}
	return bits.ReverseBytes32(raw)
}

// lookAgain has the next Progress look at the entry at ci, whatever the watch says.
func (c *compQueue) lookAgain() { c.watch.Quiet = neverWord }

// give gives the entries before ci back to the device.
func (c *compQueue) give() { c.dbr.StoreCI(c.ci) }

// Watch implements rccore.CompQueue.
func (c *compQueue) Watch() *ucs.Watch { return &c.watch }

// Arm asks for an event at the next completion after ci.
func (c *compQueue) Arm(solicitedOnly bool) error {
	word := mlx5.ArmWord(c.events.Load(), solicitedOnly, c.ci)
	c.dbr.StoreArm(word)
	first := uint64(word)<<32 | uint64(c.cqn)
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], first)
	if c.hardware {
		mmio.ToDevice() // the doorbell record before the register
	}
	mmio.Doorbell64(unsafe.Add(c.uar.Page, c.uar.Off), binary.NativeEndian.Uint64(b[:]))
	if c.hardware {
		mmio.FlushWC()
	}
	if c.uar.Doorbell != nil {
		c.uar.Doorbell.Ring(c.uar.Off, first)
	}
	return nil
}

// nobody is a QPN that no QP has: that of multicast (IBTA volume 1, 9.6).
const nobody = 1<<24 - 1

// disown makes the completions that wait for a QP those of nobody: it is gone, and
// another one may get its number. What they took from the shared receive queue is
// given back when they are read.
func (c *compQueue) disown(qpn uint32) {
	for i := c.ci; i-c.ci < c.view.Count(); i++ {
		s := c.view.Slot(i)
		if !s.Tail().Owned(c.view.Owner(i)) {
			return
		}
		if s.QPN() == qpn {
			s[57], s[58], s[59] = nobody>>16, nobody>>8&0xff, nobody&0xff
		}
	}
}

// failure fills in what went wrong.
func failure(s *mlx5.CQESlot, wc *verbs.WC) {
	wc.Status, wc.VendorErr = s.Syndrome().Status(), s.VendorErr()
}
