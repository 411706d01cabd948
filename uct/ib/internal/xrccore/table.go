package xrccore

import "github.com/gucx/gucx/uct/ib/internal/rccore"

// table maps numbers to objects. A number contains a serial, so that completions and messages for a
// removed object are not delivered to the next one in the same place.
//
//	bits 0..16  place    17..28  serial
type table[T any] struct {
	places []place[T]
	live   int // objects
}

type place[T any] struct {
	v      *T
	serial uint32
}

const (
	placeBits  = 17
	serialMask = 1<<12 - 1
)

func (t *table[T]) add(v *T) (number uint32) {
	i := 0
	for i < len(t.places) && t.places[i].v != nil {
		i++
	}
	if i == len(t.places) {
		t.places = append(t.places, place[T]{})
	}
	p := &t.places[i]
	p.v, p.serial = v, (p.serial+1)&serialMask
	t.live++
	return p.serial<<placeBits | uint32(i)
}

// at returns the object with a number from add, or nil if it was removed.
func (t *table[T]) at(number uint32) *T {
	p := &t.places[number&(1<<placeBits-1)]
	if p.serial != number>>placeBits {
		return nil
	}
	return p.v
}

// remove removes an object that is in the table.
func (t *table[T]) remove(number uint32) {
	t.places[number&(1<<placeBits-1)].v = nil
	t.live--
}

// all returns the objects.
func (t *table[T]) all() (list []*T) {
	for i := range t.places {
		if v := t.places[i].v; v != nil {
			list = append(list, v)
		}
	}
	return list
}

// workID is the ID of a work request. It contains the number of the connection or queue, and the
// slot of a receive.
//
//	bits 62..63  rccore.ExtensionID    61  a receive    32..60  number    0..31  slot
type workID uint64

const (
	recvBit     workID = 1 << 61
	numberShift        = 32
	numberMask         = 1<<29 - 1
)

func sendID(conn uint32) uint64 { return rccore.ExtensionID | uint64(conn)<<numberShift }

func recvID(queue, slot uint32) uint64 {
	return rccore.ExtensionID | uint64(recvBit) | uint64(queue)<<numberShift | uint64(slot)
}

func (id workID) isRecv() bool   { return id&recvBit != 0 }
func (id workID) number() uint32 { return uint32(id>>numberShift) & numberMask }
func (id workID) slot() uint32   { return uint32(id) }
