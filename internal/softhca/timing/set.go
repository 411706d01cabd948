package timing

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/gucx/gucx/ucs"
)

// Set changes one parameter by the name of its field, in upper or lower case: a time in
// nanoseconds, or an integer. It returns ErrInvalidParam, with the list of names, for an unknown
// name or an invalid value. New checks the range.
func (p *Params) Set(name, value string) error {
	fields := reflect.ValueOf(p).Elem()
	f := fields.FieldByNameFunc(func(n string) bool { return strings.EqualFold(n, name) })
	if !f.IsValid() {
		var names []string
		for i := range fields.NumField() {
			names = append(names, fields.Type().Field(i).Name)
		}
		return fmt.Errorf("timing: parameter %q: there are %s: %w", name, strings.Join(names, ", "), ucs.ErrInvalidParam)
	}
	if t, ok := f.Addr().Interface().(*Time); ok {
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(v) || math.Abs(v) > maxNanoseconds {
			return fmt.Errorf("timing: %s=%q: want nanoseconds: %w", name, value, ucs.ErrInvalidParam)
		}
		*t = ns(v)
		return nil
	}
	n, err := strconv.ParseInt(value, 10, f.Type().Bits())
	if err != nil {
		return fmt.Errorf("timing: %s=%q: want a whole number: %w", name, value, ucs.ErrInvalidParam)
	}
	f.SetInt(n)
	return nil
}

// maxNanoseconds limits a cost to a second: larger values would overflow.
const maxNanoseconds = 1e9
