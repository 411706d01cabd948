package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gucx/gucx/ucs"
)

// Error is the error of one variable of the environment.
type Error struct {
	Name    string // the complete name, with the prefix
	Value   string
	Want    string // grammar of the value; empty if the name is unknown
	Nearest string // the most similar known name, for an unknown name; empty if there is none
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

// draft is a copy of a table's struct, which FromEnv copies to the table if there is no error.
type draft struct {
	target reflect.Value
	values reflect.Value
}

// slot is the field of a draft that a variable sets.
type slot struct {
	field *field
	draft *draft
}

// FromEnv sets the fields of the tables from the variables with the prefix GUCX_ in environ (see os.Environ). If a
// variable occurs twice, the last one counts. Other fields do not change. FromEnv ignores variables with the prefix
// GUCX_TEST_, which tests read. Then it calls the Validate methods.
//
// The error is one line that joins all errors: an [*Error] for each unknown variable and each invalid value; if there
// are none of these, the errors of the Validate methods. After an error no table has changed.
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

// prepare returns drafts of the tables, and their fields by the names of the variables.
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

// assign sets the fields of the drafts from the variables.
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

// sortedKeys returns the keys of m in order, so that errors do not depend on the order of a map.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// title returns the name of a table for error texts.
func title(t Table) string {
	if t.Doc != "" {
		return t.Doc
	}
	return Prefix + t.Prefix
}
