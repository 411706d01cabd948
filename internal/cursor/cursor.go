// Package cursor decodes messages of untrusted peers.
package cursor

import "encoding/binary"

// Cursor reads little-endian fields from the bytes of an untrusted peer. After a read past
// the end it returns zeros and Bad is true.
type Cursor struct {
	B   []byte // not read yet
	Bad bool
}

// Take returns the next n bytes, or nil if there are not that many. The result refers to B.
func (c *Cursor) Take(n int) []byte {
	if c.Bad || n < 0 || n > len(c.B) {
		c.Bad = true
		return nil
	}
	head := c.B[:n:n]
	c.B = c.B[n:]
	return head
}

// number reads a number of n bytes, at most 8.
func (c *Cursor) number(n int) uint64 {
	var b [8]byte
	copy(b[:], c.Take(n))
	return binary.LittleEndian.Uint64(b[:])
}

// U8 reads one byte.
func (c *Cursor) U8() uint8 { return uint8(c.number(1)) }

// U16 reads two bytes.
func (c *Cursor) U16() uint16 { return uint16(c.number(2)) }

// U32 reads four bytes.
func (c *Cursor) U32() uint32 { return uint32(c.number(4)) }

// U64 reads eight bytes.
func (c *Cursor) U64() uint64 { return c.number(8) }

// Short returns a copy of bytes that follow a one-byte length; nil if the length is 0.
func (c *Cursor) Short() []byte { return append([]byte(nil), c.Take(int(c.U8()))...) }

// AppendShort appends v after a one-byte length. v has at most 255 bytes.
func AppendShort[T ~string | ~[]byte](b []byte, v T) []byte {
	return append(append(b, byte(len(v))), v...)
}
