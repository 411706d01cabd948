package cursor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestCursor_Fields: fields are little-endian, and what was not read remains.
func TestCursor_Fields(t *testing.T) {
	b := []byte{1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8, 2, 'a', 'b', 0, 99}
	c := Cursor{B: b}
	assert.Equal(t, uint8(1), c.U8())
	assert.Equal(t, uint16(0x0203), c.U16())
	assert.Equal(t, uint32(0x04050607), c.U32())
	assert.Equal(t, uint64(0x08090a0b0c0d0e0f), c.U64())
	short := c.Short()
	assert.Equal(t, []byte("ab"), short)
	assert.Nil(t, c.Short())
	assert.False(t, c.Bad)
	assert.Equal(t, []byte{99}, c.B)
	short[0] = 'x'
	assert.Equal(t, byte('a'), b[16], "a copy")
}

// TestCursor_End: a read past the end returns zero, and so do all later reads, also those that would fit.
func TestCursor_End(t *testing.T) {
	for name, read := range map[string]func(c *Cursor) any{
		"u16":      func(c *Cursor) any { return c.U16() },
		"u32":      func(c *Cursor) any { return c.U32() },
		"u64":      func(c *Cursor) any { return c.U64() },
		"take":     func(c *Cursor) any { return c.Take(2) },
		"negative": func(c *Cursor) any { return c.Take(-1) },
		"short":    func(c *Cursor) any { return c.Short() },
	} {
		c := Cursor{B: []byte{7}}
		assert.Zero(t, read(&c), name)
		assert.True(t, c.Bad, name)
		assert.Zero(t, c.U8(), name)
		assert.Nil(t, c.Take(0), name)
	}
}

// TestCursor_TakeKeepsRest: what is appended to a part does not change the bytes after it.
func TestCursor_TakeKeepsRest(t *testing.T) {
	c := Cursor{B: []byte{1, 2, 3}}
	part := c.Take(1)
	_ = append(part, 9)
	assert.Equal(t, []byte{2, 3}, c.B)
}

func TestAppendShort_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Byte(), 0, 255).Draw(t, "v")
		c := Cursor{B: AppendShort([]byte{5}, v)}
		require.Equal(t, uint8(5), c.U8())
		assert.Equal(t, string(v), string(c.Short()))
		assert.Equal(t, AppendShort(nil, v), AppendShort(nil, string(v)))
		assert.False(t, c.Bad)
		assert.Empty(t, c.B)
	})
}
