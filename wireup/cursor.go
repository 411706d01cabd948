package wireup

import "encoding/binary"

// cursor reads little-endian fields from bytes of an untrusted peer. After a read past
// the end it returns zeros and bad is true.
type cursor struct {
	b   []byte
	bad bool
}

// take returns the next n bytes, or nil if there are not that many.
func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.b) {
		c.bad = true
		return nil
	}
	head := c.b[:n:n]
	c.b = c.b[n:]
	return head
}

func (c *cursor) u8() uint8 {
	if v := c.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if v := c.take(2); v != nil {
		return binary.LittleEndian.Uint16(v)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if v := c.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if v := c.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

// short returns a copy of bytes that follow a one-byte length.
func (c *cursor) short() []byte {
	v := c.take(int(c.u8()))
	if len(v) == 0 {
		return nil
	}
	return append([]byte(nil), v...)
}

// name returns a string of at most limit printable ASCII bytes that follows a
// one-byte length.
func (c *cursor) name(limit int) string {
	v := c.take(int(c.u8()))
	if len(v) > limit || !printable(string(v)) {
		c.bad = true
		return ""
	}
	return string(v)
}

// nameAndNumber is the inverse of appendNamed; the name has at most limit bytes.
func (c *cursor) nameAndNumber(known []string, limit int) (name string, n int) {
	v := c.u8()
	code, n := int(v>>4), int(v&15)
	if n == 15 {
		n = int(c.u8())
	}
	switch {
	case code == 0:
		name = c.name(limit)
	case code < len(known):
		name = known[code]
	default:
		c.bad = true
	}
	return name, n
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// appendShort appends v after a one-byte length; v is at most 255 bytes.
func appendShort(b []byte, v []byte) []byte {
	return append(append(b, byte(len(v))), v...)
}

func appendName(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...)
}
