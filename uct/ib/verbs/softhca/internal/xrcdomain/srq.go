package xrcdomain

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// The number of an SRQ is 24 bits:
//
//	23..16  variant, 1 to 255    15..0  slot: where the device of its member has it
//
// Devices number their slots alike, so the variant tells the members apart; and it tells
// a queue from those that had the slot before. There is a word for each number:
//
//	9..0  the member's place    10  taken    11  the member died with it; free
//
// That of variant 0, which no number has, is the variant that was given last.
const (
	slotBits    = 16
	variantBits = 8
	maxVariant  = 1<<variantBits - 1
)

type srqWord uint32

const (
	srqUsed srqWord = 1 << 10
	srqDied srqWord = 1 << 11
)

func (w srqWord) place() int { return int(w % maxMembers) }
func (w srqWord) used() bool { return w&srqUsed != 0 }
func (w srqWord) died() bool { return w&srqDied != 0 }

// AddSRQ takes a number for an SRQ of this member at a slot of its device, 1 to 65535.
// ucs.ErrNoMemory when all 255 numbers of that slot are taken; another slot may have some.
func (d *Domain) AddSRQ(slot uint32) (number uint32, err error) {
	err = d.change(func() error {
		last := d.dir.srq(slot)
		for n := range uint32(maxVariant) {
			variant := (last.Load()+n)%maxVariant + 1
			number = variant<<slotBits | slot
			if d.ownerLives(srqWord(d.dir.srq(number).Load())) {
				continue
			}
			d.dir.srq(number).Store(uint32(srqUsed) | uint32(d.place))
			last.Store(variant)
			end := &d.dir.header().slotsEnd
			end.Store(max(end.Load(), slot+1))
			return nil
		}
		return fmt.Errorf("%w: SRQ numbers of slot %d", ucs.ErrNoMemory, slot)
	})
	return number, err
}

// ownerLives reports whether a number is taken by a member that is alive.
func (v *View) ownerLives(w srqWord) bool { return w.used() && v.alive(w.place()) }

// RemoveSRQ gives back a number of this member; others are left alone. It does not wait for
// members that change the directory.
func (d *Domain) RemoveSRQ(number uint32) error {
	if !d.dir.srq(number).CompareAndSwap(uint32(srqUsed)|uint32(d.place), 0) {
		return fmt.Errorf("%w: SRQ number %#x", ucs.ErrInvalidParam, number)
	}
	return nil
}

// forgetSRQs frees the numbers of a place: free is 0, or srqDied. Under the lock for changes.
func (d *Domain) clearSRQs(place int, free srqWord) {
	for slot := range d.dir.slotsEnd() {
		for variant := uint32(1); variant <= maxVariant; variant++ {
			d.dir.srq(variant<<slotBits|slot).CompareAndSwap(uint32(srqUsed)|uint32(place), uint32(free))
		}
	}
}

// SRQPlace is the place of the member that has an SRQ, below MaxPlaces, or had it when it
// died: one load. False if there is no such SRQ.
func (v *View) SRQPlace(number uint32) (place int, ok bool) {
	w := srqWord(v.dir.srq(number).Load())
	return w.place(), w.used() && number>>slotBits != 0
}

// MaxPlaces is how many members a domain can have.
const MaxPlaces = maxMembers

// SRQOwner is the member that has an SRQ; false if there is no such SRQ, or its member is
// dead. What it returns may be over when it returns: the member's device knows.
func (v *View) SRQOwner(number uint32) (Member, bool) {
	place, ok := v.SRQPlace(number)
	if !ok {
		return Member{}, false
	}
	m, ok := v.memberAt(place)
	if again, still := v.SRQPlace(number); !still || again != place {
		return Member{}, false // a member that takes the place clears the word first
	}
	return m, ok
}

// SRQDied reports whether the member that had an SRQ died with it: the number was not given
// back, nor to another one since. A system call if nobody has noted it yet.
func (v *View) SRQDied(number uint32) bool {
	w := srqWord(v.dir.srq(number).Load())
	return number>>slotBits != 0 && (w.died() || w.used() && !v.alive(w.place()))
}
