package config

import (
	"slices"
	"strings"
)

// allNames is the list that allows every name.
const allNames = "all"

// List selects names: transports, devices. The zero value allows all of them.
type List struct {
	names  []string
	negate bool
}

// Allow returns a list of just these names. Without names it allows none.
func Allow(names ...string) List {
	if names == nil {
		names = []string{}
	}
	return List{names: slices.Clone(names)}
}

// Deny returns a list of all names but these.
func Deny(names ...string) List { return List{names: slices.Clone(names), negate: true} }

// Allows says whether the list selects what goes by these names: whether it
// mentions one of them. It compares exactly.
func (l List) Allows(names ...string) bool {
	if l.names == nil {
		return true
	}
	mentioned := slices.ContainsFunc(l.names, func(name string) bool { return slices.Contains(names, name) })
	return mentioned != l.negate
}

// Names are those that the list mentions, in order: the selected ones, or with
// Negated the excluded ones. Nil for the list of all names.
func (l List) Names() []string { return slices.Clone(l.names) }

// Negated says whether Names are the excluded ones.
func (l List) Negated() bool { return l.negate }

// Unknown returns the names that the list mentions and that are not among known:
// a name that selects nothing is an error in the list.
func (l List) Unknown(known []string) []string {
	var unknown []string
	for _, name := range l.names {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// String returns the list as UnmarshalText reads it.
func (l List) String() string {
	if l.names == nil {
		return allNames
	}
	s := strings.Join(l.names, ",")
	if l.negate {
		return "^" + s
	}
	return s
}

// MarshalText is String.
func (l List) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads a list; see Grammar.
func (l *List) UnmarshalText(text []byte) error {
	s := string(text)
	if strings.EqualFold(s, allNames) {
		*l = List{}
		return nil
	}
	s, negate := strings.CutPrefix(s, "^")
	names, err := splitNames(s)
	if err != nil {
		return err
	}
	*l = List{names: names, negate: negate}
	return nil
}

// Grammar describes the values.
func (List) Grammar() string {
	return "list: names separated by commas; a leading ^ selects all but these; all"
}

// splitNames splits at commas and refuses names that are empty, repeat a ^ or have
// white space in them: they are typing errors.
func splitNames(s string) ([]string, error) {
	names := strings.Split(s, ",")
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "^ \t\r\n") || strings.EqualFold(name, allNames) {
			return nil, errSyntax
		}
	}
	return names, nil
}
