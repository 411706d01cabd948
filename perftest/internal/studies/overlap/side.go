package overlap

import (
	"fmt"
	"slices"
	"strings"
)

// Side selects what the measured side does between post and wait.
type Side string

// Sides.
const (
	Isend Side = "isend" // it sends; the other side only receives
	Irecv Side = "irecv" // it receives; the other side only sends
	Both  Side = "both"  // it sends; the other side receives and computes as long
)

// Sides lists all sides.
func Sides() []Side { return []Side{Isend, Irecv, Both} }

// SideNames returns the names of Sides.
func SideNames() (names []string) {
	for _, s := range Sides() {
		names = append(names, string(s))
	}
	return names
}

// ParseSide returns the side with a name.
func ParseSide(name string) (Side, error) {
	if !slices.Contains(Sides(), Side(name)) {
		return "", fmt.Errorf("side %q: there are %s", name, strings.Join(SideNames(), ", "))
	}
	return Side(name), nil
}
