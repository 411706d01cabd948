package config

import (
	"fmt"
	"reflect"

	"github.com/gucx/gucx/ucs"
)

// Prefix is the beginning of the name of every variable.
const Prefix = "GUCX_"

// testPrefix is the beginning of the names of variables that only tests read.
const testPrefix = Prefix + "TEST_"

// Table is one configuration struct with the prefix of its variables.
type Table struct {
	// Prefix is the part of the names of the variables between GUCX_ and the names of the fields, without the underscore
	// at its end: "RC". It is empty for tables of the whole library.
	Prefix string
	// Doc is a title for the printer.
	Doc string
	// Config is a pointer to the struct.
	Config any
}

// names returns a pattern of the table's variables for error texts: "GUCX_RC_*".
func (t Table) names() string {
	if t.Prefix == "" {
		return Prefix + "*"
	}
	return Prefix + t.Prefix + "_*"
}

// validator is a struct of a table that checks its values.
type validator interface{ Validate() error }

// field is one leaf of a table.
type field struct {
	name  string // complete name of the variable
	doc   string
	deflt string // text for the zero value; may be empty
	index []int  // path for reflect.Value.FieldByIndex
	codec codec
}

// text returns the value of the field in the struct s for Print.
func (f *field) text(s reflect.Value) string {
	v := s.FieldByIndex(f.index)
	if f.deflt != "" && v.IsZero() {
		return f.deflt
	}
	return f.codec.format(v)
}

// structOf returns the struct that the table points to.
func (t Table) structOf() (reflect.Value, error) {
	v := reflect.ValueOf(t.Config)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, fmt.Errorf("config table %q: %T is no pointer to a struct", t.Prefix, t.Config)
	}
	return v.Elem(), nil
}

// fields lists the leaves in the order of declaration. It also checks the tags, so that any test that reads the table
// detects mistakes in them.
func (t Table) fields() ([]field, error) {
	s, err := t.structOf()
	if err != nil {
		return nil, err
	}
	prefix := Prefix
	if t.Prefix != "" {
		prefix += t.Prefix + "_"
	}
	fields, err := appendFields(nil, s.Type(), prefix, nil)
	if err != nil {
		return nil, fmt.Errorf("config table %q: %w", t.Prefix, err)
	}
	return fields, nil
}

// appendFields appends the leaves of the struct type s, which is at path.
func appendFields(fields []field, s reflect.Type, prefix string, path []int) ([]field, error) {
	for i := range s.NumField() {
		f := s.Field(i)
		name, tagged := f.Tag.Lookup("env")
		if !tagged && !f.Anonymous || !f.IsExported() {
			continue
		}
		at := append(path[:len(path):len(path)], i)
		var err error
		if isTable(f.Type) {
			inner := prefix
			if tagged {
				inner += name + "_"
			}
			fields, err = appendFields(fields, f.Type, inner, at)
		} else if tagged {
			var leaf field
			leaf, err = newField(f, prefix+name, at)
			fields = append(fields, leaf)
		}
		if err != nil {
			return nil, err
		}
	}
	return fields, nil
}

// isTable reports whether a field of type t is a nested table and not a value.
func isTable(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[Value]())
}

// newField returns the leaf. It checks that the default is in the grammar of the field.
func newField(f reflect.StructField, name string, path []int) (field, error) {
	c, err := codecOf(f)
	if err != nil {
		return field{}, err
	}
	leaf := field{name: name, doc: f.Tag.Get("doc"), deflt: f.Tag.Get("default"), index: path, codec: c}
	if leaf.deflt != "" {
		if err := c.parse(reflect.New(f.Type).Elem(), leaf.deflt); err != nil {
			return field{}, fmt.Errorf("field %s: default %q: %w (%s)", f.Name, leaf.deflt, err, c.grammar)
		}
	}
	return leaf, nil
}

// validate calls Validate of the nested tables of s, then of s itself.
func validate(s reflect.Value) error {
	var errs []error
	for i := range s.NumField() {
		f := s.Type().Field(i)
		if f.IsExported() && isTable(f.Type) {
			errs = append(errs, validate(s.Field(i)))
		}
	}
	if v, ok := s.Addr().Interface().(validator); ok {
		errs = append(errs, v.Validate())
	}
	return ucs.Join(errs...)
}
