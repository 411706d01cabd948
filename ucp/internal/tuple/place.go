package tuple

import (
	"cmp"
	"math"
)

// Place is the position of a message among all tagged messages of a connection, as a NEXT contains it. The upper bits count
// the messages that went the usual way up to this one, including itself. The lower bits are its
// number among the messages through queues, or 0 if it went the usual way.
type Place uint64

// throughBits is the length of numbers of messages through queues. The numbers wrap. The receiver compares places of
// messages that are in flight or were not received.
const throughBits = 24

func newPlace(usual uint64, through uint32) Place { return Place(usual<<throughBits | uint64(through)) }

func (p Place) usual() uint64   { return uint64(p >> throughBits) }
func (p Place) through() uint32 { return uint32(p & (1<<throughBits - 1)) }

// After reports whether p was sent after q.
func (p Place) After(q Place) bool {
	if p.usual() != q.usual() || p.through() == 0 || q.through() == 0 {
		return p > q
	}
	return int32((p.through()-q.through())<<(32-throughBits)) > 0
}

// SendPlace is the position of a message among all tagged messages of a connection, at the sender. It does not wrap, because
// the sender compares messages with a place that it stored any time before. The zero value is before all places.
type SendPlace struct {
	usual   uint64 // number of messages that went the usual way up to this one, including itself
	through uint64 // number among the messages through queues; 0: it went the usual way
}

// NoPlace is behind all places.
var NoPlace = SendPlace{usual: math.MaxUint64}

// IsZero reports whether p is the zero value.
func (p SendPlace) IsZero() bool { return p == SendPlace{} }

// After reports whether p was sent after q.
func (p SendPlace) After(q SendPlace) bool { return p.compare(q) > 0 }

func (p SendPlace) compare(q SendPlace) int {
	return cmp.Or(cmp.Compare(p.usual, q.usual), cmp.Compare(p.through, q.through))
}
