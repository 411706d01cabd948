package proto

import (
	"fmt"

	"github.com/gucx/gucx/uct"
)

// Scheme is a way in which the data of an announced message comes to its receiver.
type Scheme uint8

// Schemes; those after Auto are in the order of preference when they take as long.
const (
	Auto      Scheme = iota // by cost
	Get                     // the receiver gets it from the sender's memory
	Put                     // the sender puts it into the receiver's memory
	Fragments               // in active messages, which is always possible
)

// schemeNames are as in UCX.
var schemeNames = [...]string{"auto", "get_zcopy", "put_zcopy", "am"}

// String returns UCX's name: "get_zcopy", "put_zcopy", "am" or "auto".
func (s Scheme) String() string { return schemeNames[s] }

// ParseScheme is the scheme of a name; Auto for an empty one.
func ParseScheme(name string) (s Scheme, ok bool) {
	if name == "" {
		return Auto, true
	}
	for i, n := range schemeNames {
		if n == name {
			return Scheme(i), true
		}
	}
	return Auto, false
}

// Move is a way to move bytes in pieces.
type Move struct {
	Cost  uct.Cost
	Piece int // longest length of one call; 0: there is no such way

	Registers bool   // the buffer is to be registered for it,
	Adds      uint64 // which adds so many picoseconds
}

// Quicker is the way that takes less time for n bytes; a if both take as long.
func Quicker(n int, a, b Move) Move {
	if a.Piece == 0 || b.Piece > 0 && b.time(uint64(n)) < a.time(uint64(n)) {
		return b
	}
	return a
}

// time is what n bytes take, in picoseconds: the first piece as the cost says, and the CPU
// of the others beside that.
func (m *Move) time(n uint64) uint64 {
	t := m.Cost.Time(n) + m.Adds
	if more := n / uint64(m.Piece); more > 0 {
		t += more * uint64(max(m.Cost.Send, m.Cost.Recv)) * 1000
	}
	return t
}

// Rendezvous are the ways in which the data of an announced message may come.
type Rendezvous struct {
	Message  uct.Cost // of a message that one side tells the other
	Get, Put Move     // no piece where a key, the call or the preference for it is missing
	Fragment Move
}

// Choose returns the scheme for n bytes: the preferred one, if that is possible, and otherwise what
// takes the least time, by the costs that the transports declare.
func (v *Rendezvous) Choose(n int, preferred Scheme) Scheme {
	if v.can(preferred) {
		return preferred
	}
	best := Fragments
	for _, s := range []Scheme{Put, Get} {
		if v.can(s) && v.Time(n, s) <= v.Time(n, best) {
			best = s
		}
	}
	return best
}

// Registers reports that data which comes by s needs the buffer to be registered for it.
func (v *Rendezvous) Registers(s Scheme) bool {
	return s == Get && v.Get.Registers || s == Put && v.Put.Registers
}

// can reports that the data may come by s.
func (v *Rendezvous) can(s Scheme) bool {
	switch s {
	case Get:
		return v.Get.Piece > 0
	case Put:
		return v.Put.Piece > 0
	}
	return s == Fragments
}

// Time is what it takes by s, which is possible, from the receive until n bytes are there,
// in picoseconds.
func (v *Rendezvous) Time(n int, s Scheme) uint64 {
	tell := v.Message.Time(0)
	switch s {
	case Get: // the acknowledgement holds up the sender only
		return v.Get.time(uint64(n))
	case Put: // what to put, the data, and that it is there
		return 2*tell + v.Put.time(uint64(n))
	}
	return tell + v.Fragment.time(uint64(n))
}

// Why says why Choose has chosen s for n bytes.
func (v *Rendezvous) Why(n int, preferred, s Scheme) string {
	switch {
	case s == preferred:
		return "RNDV_SCHEME=" + preferred.String()
	case !v.can(Get) && !v.can(Put):
		return "no memory that the other side reaches"
	}
	return fmt.Sprintf("the least time, %d ns", v.Time(n, s)/1000)
}
