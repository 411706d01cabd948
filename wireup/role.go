package wireup

import (
	"fmt"
	"slices"

	"github.com/gucx/gucx/ucs"
)

// Role is the purpose of a lane. Handshake messages contain these numbers.
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
