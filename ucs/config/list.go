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

// Allows reports whether the list selects an object with these names. A list of selected names must contain one of
// them, a list of excluded names none. Names are case-sensitive.
func (l List) Allows(names ...string) bool {
	if l.names == nil {
		return true
	}
	mentioned := slices.ContainsFunc(l.names, func(name string) bool { return slices.Contains(names, name) })
	return mentioned != l.negate
}

// Names returns the names in the list, in order: the selected ones, or the excluded ones if Negated returns true. It
// returns nil for the list of all names.
func (l List) Names() []string { return slices.Clone(l.names) }

// Negated reports whether Names returns the excluded names.
func (l List) Negated() bool { return l.negate }

// Unknown returns the names in the list that are not in known. The caller should report them as errors.
func (l List) Unknown(known []string) []string {
	var unknown []string
	for _, name := range l.names {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// String returns the list in the grammar of UnmarshalText.
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

// splitNames splits a list at its commas. It rejects names that are empty, begin with another ^ or contain white space,
// because these are typing errors.
func splitNames(s string) ([]string, error) {
	names := strings.Split(s, ",")
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "^ \t\r\n") || strings.EqualFold(name, allNames) {
			return nil, errSyntax
		}
	}
	return names, nil
}
