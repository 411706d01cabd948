package wireup

import "strings"

// Purpose is what a lane is used for.
type Purpose uint8

// Purposes of lanes.
const (
	RMA Purpose = iota // put and get
	AMO                // atomics
	AM                 // active messages
	Aux                // handshake messages; connects without a handshake

	purposeEnd
)

var purposeNames = [purposeEnd]string{"rma", "amo", "am", "aux"}

// String returns "rma", "amo", "am" or "aux".
func (p Purpose) String() string {
	if p < purposeEnd {
		return purposeNames[p]
	}
	return "unknown"
}

// Purposes is a set of purposes, one bit for each.
type Purposes uint8

const allPurposes = Purposes(1<<purposeEnd - 1)

// Set makes a set.
func Set(ps ...Purpose) (s Purposes) {
	for _, p := range ps {
		s |= 1 << p
	}
	return s
}

// Has reports whether p is in the set.
func (s Purposes) Has(p Purpose) bool { return s&(1<<p) != 0 }

// String lists the purposes, separated by '|'.
func (s Purposes) String() string {
	var names []string
	for p := range purposeEnd {
		if s.Has(p) {
			names = append(names, p.String())
		}
	}
	return strings.Join(names, "|")
}
