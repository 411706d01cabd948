package config

// Secret is a text that is not printed. The zero value is none.
type Secret string

// secretText is what is printed of a Secret.
const secretText = "(not shown)"

// String does not return the text, so that it does not get into a log.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return secretText
}

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// MarshalText implements Value. It is String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements Value.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	return nil
}

// Grammar implements Value.
func (*Secret) Grammar() string { return "a text, which is not printed" }
