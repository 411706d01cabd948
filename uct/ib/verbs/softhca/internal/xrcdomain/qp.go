package xrcdomain

import (
	"fmt"
	"math/bits"

	"github.com/gucx/gucx/ucs"
)

// NumberBit is set in the numbers of target QPs of a shared domain, and in those of no
// other QPs of a device.
const NumberBit = 1 << 23

// qpSerials is how many numbers an entry has in turn: bits 15 to 22.
const qpSerials = 1 << 8

// AddQP makes a target QP that this member refers to; its area is zero. ucs.ErrNoMemory
// when there is no number left.
func (d *Domain) AddQP() (number uint32, err error) {
	err = d.change(func() error {
		i, ok := d.freeQP()
		if !ok {
			return fmt.Errorf("%w: %d target QPs", ucs.ErrNoMemory, maxQPs)
		}
		e := d.dir.qp(i)
		number = d.qpNumber(i, e.serial.Add(1))
		e.refer(d.place)
		e.number.Store(number)
		d.opened[number] = 1
		return nil
	})
	return number, err
}

// Domains begin their numbers at different places, so that a device in several of them
// hardly ever has the same number twice.

func (v *View) qpNumber(i, serial uint32) uint32 {
	start := v.id.spread()
	return NumberBit | (start/maxQPs+serial)%qpSerials*maxQPs | (start+i)%maxQPs
}

// entryOf is the entry that a number belongs to, if it has one.
func (v *View) entryOf(number uint32) *qpEntry { return v.dir.qp(number - v.id.spread()) }

// spread is 23 bits that differ from inode to inode.
func (id inode) spread() uint32 {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4)
	return uint32((id.dev ^ bits.RotateLeft64(id.ino, 32)) * golden >> 41)
}

// freeQP returns an entry without QP, references and content: one that is free, a new one,
// or one of the dead. Under the lock for changes.
func (d *Domain) freeQP() (uint32, bool) {
	end := d.dir.qpsEnd()
	for i := range end {
		if e := d.dir.qp(i); e.number.Load() == 0 {
			e.clear()
			return i, true
		}
	}
	if end < maxQPs {
		d.dir.header().qpsEnd.Store(end + 1)
		d.dir.qp(end).clear()
		return end, true
	}
	for i := range end {
		if e := d.dir.qp(i); !d.used(e, noneDead) {
			e.clear()
			return i, true
		}
	}
	return 0, false
}

// noneDead is for used and Referred: who is alive is known by the locks alone.
func noneDead([16]byte) bool { return false }

// used reports whether a member refers to an entry that is alive, and not gone by its GID.
func (v *View) used(e *qpEntry, gone func(gid [16]byte) bool) bool {
	_, ok := v.user(e, gone)
	return ok
}

// user is a member for which used is true.
func (v *View) user(e *qpEntry, gone func(gid [16]byte) bool) (Member, bool) {
	for i := range e.refs {
		for rest := e.refs[i].Load(); rest != 0; rest &= rest - 1 {
			if m, ok := v.memberAt(i*64 + bits.TrailingZeros64(rest)); ok && !gone(m.GID) {
				return m, true
			}
		}
	}
	return Member{}, false
}

// OpenQP refers to a target QP that is there, once more if it did before.
// ucs.ErrInvalidParam if there is none.
func (d *Domain) OpenQP(number uint32) error {
	return d.change(func() error {
		e := d.entryOf(number)
		if number == 0 || e.number.Load() != number || !d.used(e, noneDead) {
			return noQP(number)
		}
		e.refer(d.place)
		d.opened[number]++
		return nil
	})
}

// CloseQP takes one reference of this member back. gone says that it was the last of the
// domain.
func (d *Domain) CloseQP(number uint32) (gone bool, err error) {
	err = d.change(func() error {
		if d.opened[number] == 0 {
			return noQP(number)
		}
		if d.opened[number]--; d.opened[number] > 0 {
			return nil
		}
		delete(d.opened, number)
		e := d.entryOf(number)
		if e.number.Load() != number {
			gone = true
			return nil
		}
		e.dropRef(d.place)
		if gone = !d.used(e, noneDead); gone {
			e.clear()
		}
		return nil
	})
	return gone, err
}

func noQP(number uint32) error {
	return fmt.Errorf("%w: target QP %#x", ucs.ErrInvalidParam, number)
}

// Referred reports whether a member that is alive refers to a target QP. gone says of those
// whose locks are there still what the caller knows better. A system call for each member.
func (v *View) Referred(number uint32, gone func(gid [16]byte) bool) bool {
	_, ok := v.Referrer(number, gone)
	return ok
}

// Referrer is a member for which Referred is true.
func (v *View) Referrer(number uint32, gone func(gid [16]byte) bool) (Member, bool) {
	e := v.entryOf(number)
	if number == 0 || e.number.Load() != number {
		return Member{}, false
	}
	return v.user(e, gone)
}

// Others lists the places of the members that refer to a target QP, without the own one. Those
// of dead members may be among them.
func (v *View) Others(number uint32) (places []int) {
	e := v.entryOf(number)
	for i := range e.refs {
		for rest := e.refs[i].Load(); rest != 0; rest &= rest - 1 {
			if place := i*64 + bits.TrailingZeros64(rest); place != v.place {
				places = append(places, place)
			}
		}
	}
	return places
}

// Serial is another one for each target QP that a number has been given to, one after the other.
func (v *View) Serial(number uint32) uint32 { return v.entryOf(number).serial.Load() }

// Area is what the devices of the domain keep of a target QP: zero when it is made and when
// it is gone. It is another QP's if there is none with the number: devices have the number in
// it. All members may write to it, views may not; valid until Close.
func (v *View) Area(number uint32) *Area { return &v.entryOf(number).area }

// EachArea calls f with the areas of all target QPs.
func (v *View) EachArea(f func(*Area)) {
	for i := range v.dir.qpsEnd() {
		if e := v.dir.qp(i); e.number.Load() != 0 {
			f(&e.area)
		}
	}
}

func (e *qpEntry) refers(place int) bool { return e.refs[place/64].Load()&(1<<(place%64)) != 0 }

func (e *qpEntry) refer(place int) { e.refs[place/64].Or(1 << (place % 64)) }

func (e *qpEntry) dropRef(place int) { e.refs[place/64].And(^uint64(1 << (place % 64))) }

// drop takes the reference of a place back, and the QP with the last one of those alive.
func (d *Domain) drop(e *qpEntry, place int) {
	if !e.refers(place) {
		return
	}
	e.dropRef(place)
	if !d.used(e, noneDead) {
		e.clear()
	}
}

func (e *qpEntry) clear() {
	e.number.Store(0)
	for i := range e.area {
		e.area[i].Store(0)
	}
	for i := range e.refs {
		e.refs[i].Store(0)
	}
}
