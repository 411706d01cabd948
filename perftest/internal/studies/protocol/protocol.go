// Package protocol is how studies name the protocols of UCP that they compare.
package protocol

import (
	"fmt"
	"slices"
	"strings"
)

// Protocol is a way of UCP for messages, by the variables of the environment that ask for it.
type Protocol struct {
	Name string
	Env  []string // NAME=value; the later of two settings counts
}

// List is the protocols that a study knows.
type List []Protocol

// Names are those of the protocols, in their order.
func (l List) Names() (names []string) {
	for _, p := range l {
		names = append(names, p.Name)
	}
	return names
}

// Find is the protocol of that name. The error of an unknown one has all names.
func (l List) Find(name string) (Protocol, error) {
	if i := slices.IndexFunc(l, func(p Protocol) bool { return p.Name == name }); i >= 0 {
		return l[i], nil
	}
	return Protocol{}, fmt.Errorf("protocol %q: there are %s", name, strings.Join(l.Names(), ", "))
}
