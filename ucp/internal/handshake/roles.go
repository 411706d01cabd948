package handshake

import (
	"strings"

	"github.com/gucx/gucx/wireup"
)

// Roles is a set of roles, one bit for each.
type Roles uint8

// laneRoles are the roles that a message may contain. Aux is not among them: a handshake does not connect its
// own lane.
const laneRoles = Roles(1<<wireup.Aux - 1)

// sharedRoles are the bandwidth roles. They have lanes besides those of the other roles, and a connection works
// without them.
const sharedRoles = Roles(1<<wireup.RMABW | 1<<wireup.AMBW)

// amRoles are the roles of active messages. The receiver must know the connection first.
const amRoles = Roles(1<<wireup.AM | 1<<wireup.AMBW)

// Set returns the set of the given roles.
func Set(rs ...wireup.Role) (s Roles) {
	for _, r := range rs {
		s |= 1 << r
	}
	return s
}

// Has reports whether r is in the set.
func (s Roles) Has(r wireup.Role) bool { return s&(1<<r) != 0 }

// String lists the roles, separated by '|'.
func (s Roles) String() string {
	var names []string
	for r := range wireup.Aux + 1 {
		if s.Has(r) {
			names = append(names, r.String())
		}
	}
	return strings.Join(names, "|")
}
