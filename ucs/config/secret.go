package config

// Secret is a text that is never printed, such as a password. The zero value means that there is no secret.
type Secret string

// secretText is printed in place of a Secret that is not empty.
const secretText = "(not shown)"

// String returns secretText or "", so that a log never contains the secret.
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
