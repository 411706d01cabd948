package proto

import (
	"fmt"

	"github.com/gucx/gucx/uct"
)

// Scheme is the operation that transfers the data of a rendezvous message to its receiver.
type Scheme uint8

// Schemes. If several take the same time, the first one after Auto is preferred.
const (
	Auto      Scheme = iota // by cost
	Get                     // the receiver gets the data from the sender's memory
	Put                     // the sender puts the data into the receiver's memory
	Fragments               // the sender sends it in active messages, which is always possible
)

// schemeNames are UCX's names of the schemes.
var schemeNames = [...]string{"auto", "get_zcopy", "put_zcopy", "am"}

// String returns UCX's name: "get_zcopy", "put_zcopy", "am" or "auto".
func (s Scheme) String() string { return schemeNames[s] }

// ParseScheme returns the scheme with a name; Auto for an empty name. ok is false if there is none.
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

// Move is an operation of a transport that transfers bytes, in one or more calls.
type Move struct {
	Cost  uct.Cost
	Piece int // maximum length of one call in bytes; 0: the operation is not possible

	Registers bool   // the buffer must be registered for it
	Adds      uint64 // cost of that registration, in picoseconds
}

// Faster returns the operation that takes less time for n bytes; a if both take the same time.
func Faster(n int, a, b Move) Move {
	if a.Piece == 0 || b.Piece > 0 && b.time(uint64(n)) < a.time(uint64(n)) {
		return b
	}
	return a
}

// time returns the time for n bytes, in picoseconds: the cost of one call, and CPU time
// for each further call.
func (m *Move) time(n uint64) uint64 {
	t := m.Cost.Time(n) + m.Adds
	if more := n / uint64(m.Piece); more > 0 {
		t += more * uint64(max(m.Cost.Send, m.Cost.Recv)) * 1000
	}
	return t
}

// Rendezvous has the operations that may transfer the data of a rendezvous message.
type Rendezvous struct {
	Message  uct.Cost // cost of a control message
	Get, Put Move     // Piece is 0 if the key or the call is missing, or the configuration excludes it
	Fragment Move
}

// Choose returns the scheme for n bytes: the preferred one if it is possible, otherwise the one that
// takes the least time, by the costs.
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

// Registers reports whether the buffer must be registered for s.
func (v *Rendezvous) Registers(s Scheme) bool {
	return s == Get && v.Get.Registers || s == Put && v.Put.Registers
}

// can reports whether s is possible.
func (v *Rendezvous) can(s Scheme) bool {
	switch s {
	case Get:
		return v.Get.Piece > 0
	case Put:
		return v.Put.Piece > 0
	}
	return s == Fragments
}

// Time returns the time from the receive until n bytes have arrived by s, in picoseconds. s must be possible.
func (v *Rendezvous) Time(n int, s Scheme) uint64 {
	control := v.Message.Time(0)
	switch s {
	case Get: // the acknowledgement delays the sender only
		return v.Get.time(uint64(n))
	case Put: // RTR, the data, PUT DONE
		return 2*control + v.Put.time(uint64(n))
	}
	return control + v.Fragment.time(uint64(n))
}

// Why returns the reason for which Choose has chosen s for n bytes.
func (v *Rendezvous) Why(n int, preferred, s Scheme) string {
	switch {
	case s == preferred:
		return "RNDV_SCHEME=" + preferred.String()
	case !v.can(Get) && !v.can(Put):
		return "no memory that the other side reaches"
	}
	return fmt.Sprintf("the least time, %d ns", v.Time(n, s)/1000)
}
