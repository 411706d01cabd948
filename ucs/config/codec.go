package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Value is a type of configuration values that a package defines itself, for example an enumeration. Its zero value is
// the default. UnmarshalText has a pointer receiver. It must not change the value if it returns an error.
type Value interface {
	encoding.TextUnmarshaler
	encoding.TextMarshaler
	// Grammar describes the permitted text in a few words.
	Grammar() string
}

// codec reads and writes the text of one field.
type codec struct {
	grammar string
	parse   func(field reflect.Value, text string) error
	format  func(field reflect.Value) string
}

var durationType = reflect.TypeFor[time.Duration]()

// codecOf finds the codec of a field by its type and tags.
func codecOf(f reflect.StructField) (codec, error) {
	switch {
	case reflect.PointerTo(f.Type).Implements(reflect.TypeFor[Value]()):
		return valueCodec(f.Type), nil
	case f.Type == durationType:
		return durationCodec, nil
	case reflect.PointerTo(f.Type).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return codec{}, fmt.Errorf("field %s: type %v has UnmarshalText but is no Value", f.Name, f.Type)
	}
	switch f.Type.Kind() {
	case reflect.Bool:
		return boolCodec, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return intCodec, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return uintCodec, nil
	case reflect.Float64:
		return floatCodec, nil
	case reflect.String:
		if values := f.Tag.Get("enum"); values != "" {
			return enumCodec(strings.Split(values, ",")), nil
		}
		return stringCodec, nil
	case reflect.Slice:
		if reflect.TypeFor[[]string]().ConvertibleTo(f.Type) {
			return stringsCodec, nil
		}
	}
	return codec{}, fmt.Errorf("field %s: type %v cannot be in the environment", f.Name, f.Type)
}

// valueCodec returns the codec of a type that implements Value.
func valueCodec(t reflect.Type) codec {
	return codec{
		grammar: reflect.New(t).Interface().(Value).Grammar(),
		parse: func(field reflect.Value, text string) error {
			return field.Addr().Interface().(Value).UnmarshalText([]byte(text))
		},
		format: func(field reflect.Value) string {
			text, err := field.Addr().Interface().(Value).MarshalText()
			if err != nil {
				return fmt.Sprintf("(%v)", err)
			}
			return string(text)
		},
	}
}

var durationCodec = codec{
	grammar: durationGrammar,
	parse: func(field reflect.Value, text string) error {
		d, err := ParseDuration(text)
		if err == nil {
			field.SetInt(int64(d))
		}
		return err
	},
	format: func(field reflect.Value) string { return FormatDuration(time.Duration(field.Int())) },
}

var boolCodec = codec{
	grammar: "y or n",
	parse: func(field reflect.Value, text string) error {
		on, err := parseBool(text)
		if err == nil {
			field.SetBool(on)
		}
		return err
	},
	format: func(field reflect.Value) string {
		if field.Bool() {
			return "y"
		}
		return "n"
	},
}

var intCodec = codec{
	grammar: "integer",
	parse: func(field reflect.Value, text string) error {
		v, err := strconv.ParseInt(text, 0, field.Type().Bits())
		if err == nil {
			field.SetInt(v)
		}
		return numberError(err)
	},
	format: func(field reflect.Value) string { return strconv.FormatInt(field.Int(), 10) },
}

var uintCodec = codec{
	grammar: "unsigned integer",
	parse: func(field reflect.Value, text string) error {
		v, err := strconv.ParseUint(text, 0, field.Type().Bits())
		if err == nil {
			field.SetUint(v)
		}
		return numberError(err)
	},
	format: func(field reflect.Value) string { return strconv.FormatUint(field.Uint(), 10) },
}

var floatCodec = codec{
	grammar: "number",
	parse: func(field reflect.Value, text string) error {
		if strings.Trim(text, "+-.0123456789eE") != "" { // no hex, inf, nan
			return errSyntax
		}
		v, err := strconv.ParseFloat(text, 64)
		if err == nil {
			field.SetFloat(v)
		}
		return numberError(err)
	},
	format: func(field reflect.Value) string { return strconv.FormatFloat(field.Float(), 'g', -1, 64) },
}

var stringCodec = codec{
	grammar: "text",
	parse: func(field reflect.Value, text string) error {
		field.SetString(text)
		return nil
	},
	format: reflect.Value.String,
}

var stringsCodec = codec{
	grammar: "names separated by commas",
	parse: func(field reflect.Value, text string) error {
		if text == "" {
			field.SetZero()
			return nil
		}
		names := reflect.ValueOf(strings.Split(text, ","))
		field.Set(names.Convert(field.Type()))
		return nil
	},
	format: func(field reflect.Value) string {
		names := make([]string, field.Len())
		for i := range names {
			names[i] = field.Index(i).String()
		}
		return strings.Join(names, ",")
	},
}

// enumCodec accepts the values in upper and lower case. The field gets the value as it is declared.
func enumCodec(values []string) codec {
	c := stringCodec
	c.grammar = "one of " + strings.Join(values, ", ")
	c.parse = func(field reflect.Value, text string) error {
		i := slices.IndexFunc(values, func(v string) bool { return strings.EqualFold(v, text) })
		if i < 0 {
			return errSyntax
		}
		field.SetString(values[i])
		return nil
	}
	return c
}

// numberError returns errRange or errSyntax for an error of package strconv.
func numberError(err error) error {
	if e, ok := err.(*strconv.NumError); ok {
		if e.Err == strconv.ErrRange {
			return errRange
		}
		return errSyntax
	}
	return err
}
