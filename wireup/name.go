package wireup

import (
	"slices"

	"github.com/gucx/gucx/internal/cursor"
)

// appendNamed packs a name and the number n. A name in known is packed as its index there.
func appendNamed(b []byte, known []string, name string, n int) []byte {
	code := max(0, slices.Index(known, name))
	b = append(b, byte(code)<<4|byte(min(n, 15)))
	if n >= 15 {
		b = append(b, byte(n))
	}
	if code == 0 {
		b = cursor.AppendShort(b, name)
	}
	return b
}

// readNamed is the inverse of appendNamed; the name has at most limit bytes.
func readNamed(c *cursor.Cursor, known []string, limit int) (name string, n int) {
	v := c.U8()
	code, n := int(v>>4), int(v&15)
	if n == 15 {
		n = int(c.U8())
	}
	switch {
	case code == 0:
		name = readName(c, limit)
	case code < len(known):
		name = known[code]
	default:
		c.Bad = true
	}
	return name, n
}

// readName reads a string of at most limit printable ASCII bytes that follows a
// one-byte length.
func readName(c *cursor.Cursor, limit int) string {
	v := c.Take(int(c.U8()))
	if len(v) > limit || !printable(string(v)) {
		c.Bad = true
		return ""
	}
	return string(v)
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
