package config

import "strings"

// Ternary enables or disables a feature that the system may not support. The zero value is Auto.
type Ternary uint8

const (
	Auto Ternary = iota // gucx decides
	No                  // disabled
	Yes                 // enabled; an error if the system does not support it
	Try                 // enabled if the system supports it
)

var ternaryNames = [...]string{Auto: "auto", No: "n", Yes: "y", Try: "try"}

// String returns auto, n, y or try.
func (t Ternary) String() string {
	if int(t) >= len(ternaryNames) {
		return ternaryNames[Auto]
	}
	return ternaryNames[t]
}

// MarshalText is String.
func (t Ternary) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads a switch; see Grammar.
func (t *Ternary) UnmarshalText(text []byte) error {
	s := strings.ToLower(string(text))
	switch s {
	case ternaryNames[Auto]:
		*t = Auto
		return nil
	case ternaryNames[Try]:
		*t = Try
		return nil
	}
	on, err := parseBool(s)
	if err != nil {
		return err
	}
	*t = No
	if on {
		*t = Yes
	}
	return nil
}

// Grammar describes the values.
func (Ternary) Grammar() string { return "y, n, try or auto" }

// parseBool parses y, yes, on, 1, true, n, no, off, 0 and false, in upper or lower case.
func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "y", "yes", "on", "1", "true":
		return true, nil
	case "n", "no", "off", "0", "false":
		return false, nil
	}
	return false, errSyntax
}
