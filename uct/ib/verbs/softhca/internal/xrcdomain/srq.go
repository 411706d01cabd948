package xrcdomain

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// srqWord is an SRQ number in the directory:
//
//	bits 0..9  the member's place    10  taken    11..17  serial: bits 17 to 23 of the number
//
// The serial stays when the number is free, so that the next one is another.
type srqWord uint64

const (
	srqTaken    srqWord = 1 << 10
	serialShift         = 11
	serialMask          = 1<<7 - 1
	slotBits            = 17 // maxSRQs
)

func (w srqWord) place() int     { return int(w % maxMembers) }
func (w srqWord) taken() bool    { return w&srqTaken != 0 }
func (w srqWord) serial() uint32 { return uint32(w>>serialShift) & serialMask }

// number is the SRQN of word i; never 0, as the serial of one that is taken is not.
func (w srqWord) number(i uint32) uint32 { return w.serial()<<slotBits | i }

// taking is the word after w when a member takes it.
func (w srqWord) taking(place int) srqWord {
	serial := w.serial()%serialMask + 1
	return srqWord(serial)<<serialShift | srqTaken | srqWord(place)
}

// AddSRQ takes a number, 24 bits, for an SRQ of this member. ucs.ErrNoMemory when there is
// none left.
func (d *Domain) AddSRQ() (number uint32, err error) {
	err = d.change(func() error {
		next, known := d.dir.header().nextSRQ.Load(), d.place
		for n := range uint32(maxSRQs) {
			i := (next + n) % maxSRQs
			old := srqWord(d.dir.srq(i).Load())
			if old.taken() && (old.place() == known || d.alive(old.place())) {
				known = old.place()
				continue
			}
			w := old.taking(d.place)
			d.dir.srq(i).Store(uint64(w))
			d.dir.header().nextSRQ.Store(i + 1)
			number = w.number(i)
			return nil
		}
		return fmt.Errorf("%w: %d SRQ numbers", ucs.ErrNoMemory, maxSRQs)
	})
	return number, err
}

// RemoveSRQ gives back a number of this member; others are left alone.
func (d *Domain) RemoveSRQ(number uint32) error {
	return d.change(func() error {
		i := number % maxSRQs
		w := srqWord(d.dir.srq(i).Load())
		if !w.taken() || w.number(i) != number || w.place() != d.place {
			return fmt.Errorf("%w: SRQ number %#x", ucs.ErrInvalidParam, number)
		}
		d.dir.srq(i).Store(uint64(w &^ srqTaken))
		return nil
	})
}

// forgetSRQs frees the numbers of a place. Under the lock for changes.
func (d *Domain) forgetSRQs(place int) {
	for i := range uint32(maxSRQs) {
		if w := srqWord(d.dir.srq(i).Load()); w.taken() && w.place() == place {
			d.dir.srq(i).Store(uint64(w &^ srqTaken))
		}
	}
}

// SRQOwner is the member that has an SRQ; false if there is no such SRQ, or its member is
// dead. What it returns may be over when it returns: the member's device knows.
func (v *View) SRQOwner(number uint32) (Member, bool) {
	i := number % maxSRQs
	before := v.dir.srq(i).Load()
	w := srqWord(before)
	if !w.taken() || w.number(i) != number {
		return Member{}, false
	}
	m, ok := v.memberAt(w.place())
	return m, ok && v.dir.srq(i).Load() == before // a member that takes the place clears the word first
}
