// Package protocol contains the names of the protocols of UCP that studies compare.
package protocol

import (
	"fmt"
	"slices"
	"strings"
)

// Protocol is a protocol of UCP for messages, and the variables of the environment that select it.
type Protocol struct {
	Name string
	Env  []string // NAME=value; the later of two settings counts
}

// List contains the protocols that a study knows.
type List []Protocol

// Names returns the names of the protocols, in their order.
func (l List) Names() (names []string) {
	for _, p := range l {
		names = append(names, p.Name)
	}
	return names
}

// Find returns the protocol with a name. The error for an unknown one contains all names.
func (l List) Find(name string) (Protocol, error) {
	if i := slices.IndexFunc(l, func(p Protocol) bool { return p.Name == name }); i >= 0 {
		return l[i], nil
	}
	return Protocol{}, fmt.Errorf("protocol %q: there are %s", name, strings.Join(l.Names(), ", "))
}
