package tcp

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gucx/gucx/uct"
)

// PortRange contains the ports of Config.Port. The zero value lets the kernel choose.
type PortRange struct {
	First uint16
	Last  uint16 // not below First; 0 means First
}

// last returns the last port of the range.
func (r PortRange) last() uint16 { return max(r.First, r.Last) }

// String returns the range in the format that UnmarshalText reads.
func (r PortRange) String() string {
	first := strconv.Itoa(int(r.First))
	if r.last() == r.First {
		return first
	}
	return first + "-" + strconv.Itoa(int(r.Last))
}

// MarshalText is String.
func (r PortRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a port, or two ports with a hyphen between them. ErrInvalidParam.
func (r *PortRange) UnmarshalText(text []byte) error {
	first, last, ranged := strings.Cut(string(text), "-")
	a, err := strconv.ParseUint(first, 10, 16)
	b := a
	if err == nil && ranged {
		b, err = strconv.ParseUint(last, 10, 16)
	}
	if err != nil || b < a || ranged && a == 0 {
		return fmt.Errorf("%w: %.40q is neither a port nor a range of ports, such as 7700-7799", uct.ErrInvalidParam, text)
	}
	*r = PortRange{First: uint16(a), Last: uint16(b)}
	return nil
}

// Grammar implements config.Value.
func (PortRange) Grammar() string { return "a port, or two with a hyphen between them: 7700-7799" }

// validate checks a range that was set by a program.
func (r PortRange) validate() error {
	if r.Last != 0 && (r.Last < r.First || r.First == 0) {
		return fmt.Errorf("%w: PORT: from %d to %d", uct.ErrInvalidParam, r.First, r.Last)
	}
	return nil
}
