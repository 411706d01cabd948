package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gucx/gucx/ucs"
)

// Error is what is wrong with one name in the environment.
type Error struct {
	Name    string // whole, with prefix
	Value   string
	Want    string // grammar of the value; empty if the name is unknown
	Nearest string // for an unknown name: the most similar known one, if there is any
	Err     error  // cause, for a bad value
}

// Error returns the text: name, value and what was expected.
func (e *Error) Error() string {
	if e.Want != "" {
		return fmt.Sprintf("%s=%q: %v: want %s", e.Name, e.Value, e.Err, e.Want)
	}
	if e.Nearest == "" {
		return e.Name + ": unknown name"
	}
	return fmt.Sprintf("%s: unknown name, the nearest is %s", e.Name, e.Nearest)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// draft is a copy of a table's struct that takes effect if all goes well.
type draft struct {
	target reflect.Value
	values reflect.Value
}

// slot is where a name goes.
type slot struct {
	field *field
	draft *draft
}

// FromEnv reads all names with the prefix GUCX_ from environ (see os.Environ) into
// the tables; of a name that comes twice the last counts. What no name sets keeps
// the value it has. Names with the prefix GUCX_TEST_ belong to tests and are passed
// over. It then calls the Validate hooks.
//
// The error joins everything that is wrong, in one line: each unknown name and each bad
// value as an [*Error], or else what the hooks said. If there is one, no table has changed.
func FromEnv(environ []string, tables ...Table) error {
	drafts, slots, err := prepare(tables)
	if err != nil {
		return err
	}
	if err := assign(environ, slots); err != nil {
		return err
	}
	var errs []error
	for i, d := range drafts {
		if err := validate(d.values); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", tables[i].names(), err))
		}
	}
	if err := ucs.Join(errs...); err != nil {
		return err
	}
	for _, d := range drafts {
		d.target.Set(d.values)
	}
	return nil
}

// prepare copies the structs and indexes their fields by name.
func prepare(tables []Table) ([]*draft, map[string]slot, error) {
	drafts, slots := make([]*draft, len(tables)), map[string]slot{}
	for i, t := range tables {
		fields, err := t.fields()
		if err != nil {
			return nil, nil, err
		}
		target, err := t.structOf()
		if err != nil {
			return nil, nil, err
		}
		d := &draft{target: target, values: reflect.New(target.Type()).Elem()}
		d.values.Set(target)
		drafts[i] = d
		for j := range fields {
			if _, taken := slots[fields[j].name]; taken {
				return nil, nil, fmt.Errorf("config: %s is in two tables", fields[j].name)
			}
			slots[fields[j].name] = slot{&fields[j], d}
		}
	}
	return drafts, slots, nil
}

// assign puts the values where they belong, in the drafts.
func assign(environ []string, slots map[string]slot) error {
	values := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, Prefix) && !strings.HasPrefix(name, testPrefix) {
			values[name] = value
		}
	}
	var errs []error
	for _, name := range sortedKeys(values) {
		if err := assignOne(name, values[name], slots); err != nil {
			errs = append(errs, err)
		}
	}
	return ucs.Join(errs...)
}

// assignOne parses one value into its draft.
func assignOne(name, value string, slots map[string]slot) error {
	s, known := slots[name]
	if !known {
		return &Error{Name: name, Value: value, Nearest: Nearest(name, sortedKeys(slots))}
	}
	if err := s.field.codec.parse(s.draft.values.FieldByIndex(s.field.index), value); err != nil {
		return &Error{Name: name, Value: value, Want: s.field.codec.grammar, Err: err}
	}
	return nil
}

// sortedKeys makes what depends on a map the same in every run.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// title is how messages call a table.
func title(t Table) string {
	if t.Doc != "" {
		return t.Doc
	}
	return Prefix + t.Prefix
}
