package wireup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gucx/gucx/ucs"
)

// Role is what a lane is used for. Its number is on the wire.
type Role uint8

// Roles of lanes. The bandwidth roles may have several lanes, the others have one.
const (
	RMA   Role = 0 // put and get
	AMO   Role = 1 // atomics
	AM    Role = 2 // active messages
	RMABW Role = 3 // large put and get
	AMBW  Role = 4 // large active messages
	Aux   Role = 5 // handshake messages; connects without a handshake

	roleEnd = 6
)

var roleNames = [roleEnd]string{"rma", "amo", "am", "rma_bw", "am_bw", "aux"}

// String returns "rma", "amo", "am", "rma_bw", "am_bw" or "aux".
func (r Role) String() string {
	if r < roleEnd {
		return roleNames[r]
	}
	return "unknown"
}

// MarshalText implements encoding.TextMarshaler: the text of String.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It accepts the text that MarshalText returns.
func (r *Role) UnmarshalText(text []byte) error {
	at := slices.Index(roleNames[:], string(text))
	if at < 0 {
		return fmt.Errorf("wireup: unknown role %q: %w", text, ucs.ErrInvalidParam)
	}
	*r = Role(at)
	return nil
}

// shared reports whether r is a bandwidth role. It has lanes besides those of the other roles,
// and a connection works without it.
func (r Role) shared() bool { return sharedRoles.Has(r) }

const sharedRoles = Roles(1<<RMABW | 1<<AMBW)

// Roles is a set of roles, one bit for each.
type Roles uint8

// laneRoles are the roles that a message may contain. Aux is not among them: a handshake does not connect its
// own lane.
const laneRoles = Roles(1<<Aux - 1)

// Set returns the set of the given roles.
func Set(rs ...Role) (s Roles) {
	for _, r := range rs {
		s |= 1 << r
	}
	return s
}

// Has reports whether r is in the set.
func (s Roles) Has(r Role) bool { return s&(1<<r) != 0 }

// String lists the roles, separated by '|'.
func (s Roles) String() string {
	var names []string
	for r := range Role(roleEnd) {
		if s.Has(r) {
			names = append(names, r.String())
		}
	}
	return strings.Join(names, "|")
}
