package xrcdomain

import (
	"fmt"
	"math/bits"

	"github.com/gucx/gucx/ucs"
)

// NumberBit is set in the numbers of target QPs of shared domains, and not in those of other
// QPs.
const NumberBit = 1 << 23

// qpSerials is the number of numbers that an entry uses in turn: bits 15 to 22.
const qpSerials = 1 << 8

// AddQP creates a target QP with a reference of this member; its area is zero. ucs.ErrNoMemory if
// no number is free.
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

// The numbers of domains start at different values, so that the target QPs of a device in several
// domains rarely have equal numbers.

func (v *View) qpNumber(i, serial uint32) uint32 {
	start := v.id.spread()
	return NumberBit | (start/maxQPs+serial)%qpSerials*maxQPs | (start+i)%maxQPs
}

// entryOf returns the entry of a number; the caller compares its number.
func (v *View) entryOf(number uint32) *qpEntry { return v.dir.qp(number - v.id.spread()) }

// spread returns 23 bits that differ between inodes: a hash.
func (id inode) spread() uint32 {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4)
	return uint32((id.dev ^ bits.RotateLeft64(id.ino, 32)) * golden >> 41)
}

// freeQP returns a cleared entry: a free one, a new one, or one to which only dead members refer. The
// lock for changes is held.
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

// noneDead is an argument of used and Referred: only the locks decide which members are alive.
func noneDead([16]byte) bool { return false }

// used reports whether a member that is alive, and for which gone returns false, refers to an entry.
func (v *View) used(e *qpEntry, gone func(gid [16]byte) bool) bool {
	_, ok := v.user(e, gone)
	return ok
}

// user returns such a member.
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

// OpenQP adds a reference of this member to an existing target QP. ucs.ErrInvalidParam if there is
// none.
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

// CloseQP releases a reference of this member. gone reports whether it was the last one of the
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

// Referred reports whether a member that is alive refers to a target QP. gone returns true for
// members that the caller knows to be gone although their locks still exist. It makes a system call
// for each member.
func (v *View) Referred(number uint32, gone func(gid [16]byte) bool) bool {
	_, ok := v.Referrer(number, gone)
	return ok
}

// Referrer returns a member for which Referred is true.
func (v *View) Referrer(number uint32, gone func(gid [16]byte) bool) (Member, bool) {
	e := v.entryOf(number)
	if number == 0 || e.number.Load() != number {
		return Member{}, false
	}
	return v.user(e, gone)
}

// Others lists the places of the other members that refer to a target QP, possibly also dead ones.
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

// Serial returns the serial of the entry of a number. It differs for each target QP that gets the
// number in turn.
func (v *View) Serial(number uint32) uint32 { return v.entryOf(number).serial.Load() }

// Area returns the data of the devices for a target QP: zero when the QP is created and after it is
// gone. If there is no QP with the number, it is the area of another QP: devices store the number in
// it. Members may write to it, views may not. It is valid until Close.
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

// drop releases the reference of a place, and removes the QP if no member that is alive refers to it.
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
