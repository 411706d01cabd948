package overlap

import (
	"fmt"
	"slices"
	"strings"
)

// Side is what the measured side does between post and wait.
type Side string

// Sides.
const (
	Isend Side = "isend" // it sends; the other side receives and does nothing else
	Irecv Side = "irecv" // it receives; the other side sends and does nothing else
	Both  Side = "both"  // it sends; the other side receives and works as long
)

// Sides are all of them.
func Sides() []Side { return []Side{Isend, Irecv, Both} }

// SideNames are the names of Sides.
func SideNames() (names []string) {
	for _, s := range Sides() {
		names = append(names, string(s))
	}
	return names
}

// ParseSide finds a side by name.
func ParseSide(name string) (Side, error) {
	if !slices.Contains(Sides(), Side(name)) {
		return "", fmt.Errorf("side %q: there are %s", name, strings.Join(SideNames(), ", "))
	}
	return Side(name), nil
}
