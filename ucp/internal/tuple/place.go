package tuple

// Place is where a message stands among all tagged messages of a connection. The upper bits count
// the messages that went the usual way up to this one, itself included. The lower bits are its
// number among those that went through queues, or 0 if it went the usual way.
type Place uint64

// throughBits is how long numbers of messages through queues are. They wrap: so many are
// never under way.
const throughBits = 24

func newPlace(usual uint64, through uint32) Place { return Place(usual<<throughBits | uint64(through)) }

func (p Place) usual() uint64   { return uint64(p >> throughBits) }
func (p Place) through() uint32 { return uint32(p & (1<<throughBits - 1)) }

// after reports that p was sent after q.
func (p Place) after(q Place) bool {
	if p.usual() != q.usual() || p.through() == 0 || q.through() == 0 {
		return p > q
	}
	return int32((p.through()-q.through())<<(32-throughBits)) > 0
}

// Without is the place of a message through a queue when the number-th message of the usual
// way was not sent after all: those behind it have come closer.
func (p Place) Without(number uint64) Place {
	if p.usual() >= number {
		p -= 1 << throughBits
	}
	return p
}
