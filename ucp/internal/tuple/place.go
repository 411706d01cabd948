package tuple

// Place is the position of a message among all tagged messages of a connection. The upper bits count
// the messages that went the usual way up to this one, including itself. The lower bits are its
// number among the messages through queues, or 0 if it went the usual way.
type Place uint64

// NoPlace is behind all places.
const NoPlace Place = 1<<64 - 1

// throughBits is the length of numbers of messages through queues. The numbers wrap: fewer messages
// are in flight at a time.
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
