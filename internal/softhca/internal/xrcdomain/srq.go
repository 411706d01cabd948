package xrcdomain

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// The number of an SRQ is 24 bits:
//
//	23..16  variant, 1 to 255    15..0  slot in the device of its member
//
// Devices use equal slots, so the variant distinguishes the members, and a queue from earlier
// ones in its slot. There is a word for each number:
//
//	9..0  place of the member    10  in use    11  the member died while it was in use; free
//
// No number has variant 0; its word is the latest variant of the slot.
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

// AddSRQ allocates a number for an SRQ of this member in a slot of its device, 1 to 65535.
// ucs.ErrNoMemory if all 255 numbers of the slot are in use; another slot may have free ones.
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

// ownerLives reports whether a number is in use by a member that is alive.
func (v *View) ownerLives(w srqWord) bool { return w.used() && v.alive(w.place()) }

// RemoveSRQ releases a number of this member. ucs.ErrInvalidParam if the number is not this member's.
// It does not wait for members that change the directory.
func (d *Domain) RemoveSRQ(number uint32) error {
	if !d.dir.srq(number).CompareAndSwap(uint32(srqUsed)|uint32(d.place), 0) {
		return fmt.Errorf("%w: SRQ number %#x", ucs.ErrInvalidParam, number)
	}
	return nil
}

// clearSRQs frees the numbers of a place: free is 0, or srqDied. The lock for changes is held.
func (d *Domain) clearSRQs(place int, free srqWord) {
	for slot := range d.dir.slotsEnd() {
		for variant := uint32(1); variant <= maxVariant; variant++ {
			d.dir.srq(variant<<slotBits|slot).CompareAndSwap(uint32(srqUsed)|uint32(place), uint32(free))
		}
	}
}

// SRQPlace returns the place of the member with an SRQ, below MaxPlaces; the member may be dead. It is
// one load. False if there is no such SRQ.
func (v *View) SRQPlace(number uint32) (place int, ok bool) {
	w := srqWord(v.dir.srq(number).Load())
	return w.place(), w.used() && number>>slotBits != 0
}

// MaxPlaces is the maximum number of members of a domain.
const MaxPlaces = maxMembers

// SRQOwner returns the member with an SRQ; false if there is no such SRQ, or its member is dead. The
// result may be outdated when it returns; the table of the member's device is authoritative.
func (v *View) SRQOwner(number uint32) (Member, bool) {
	place, ok := v.SRQPlace(number)
	if !ok {
		return Member{}, false
	}
	m, ok := v.memberAt(place)
	if again, still := v.SRQPlace(number); !still || again != place {
		return Member{}, false // the next member at the place clears the word first
	}
	return m, ok
}

// SRQDied reports whether the member with an SRQ has died while the number was in use, and the number
// was not reused since. It makes a system call if no member has recorded that yet.
func (v *View) SRQDied(number uint32) bool {
	w := srqWord(v.dir.srq(number).Load())
	return number>>slotBits != 0 && (w.died() || w.used() && !v.alive(w.place()))
}
