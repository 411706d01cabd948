package ib

import (
	"fmt"
	"strconv"

	"github.com/gucx/gucx/uct"
)

// GIDIndex is an index in the GID table of a port, plus 1, or GIDAuto. Use GIDAt to make one.
type GIDIndex uint16

// GIDAuto, the zero value, selects an entry as UCX does.
const GIDAuto GIDIndex = 0

// GIDAt returns the GIDIndex of the entry at index.
func GIDAt(index uint8) GIDIndex { return GIDIndex(index) + 1 }

// String returns "auto" or the index.
func (g GIDIndex) String() string {
	if g == GIDAuto {
		return "auto"
	}
	return strconv.Itoa(int(g) - 1)
}

// MarshalText implements config.Value.
func (g GIDIndex) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements config.Value. ErrInvalidParam.
func (g *GIDIndex) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*g = GIDAuto
		return nil
	}
	n, err := strconv.ParseUint(string(text), 10, 8)
	if err != nil {
		return fmt.Errorf("%w: no GID index", uct.ErrInvalidParam)
	}
	*g = GIDAt(uint8(n))
	return nil
}

// Grammar implements config.Value.
func (GIDIndex) Grammar() string { return "auto or 0 to 255" }
