package wireup

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/cursor"
)

// TestAppendNamed: each number comes back with each name, also where the number does not fit beside the name.
func TestAppendNamed(t *testing.T) {
	for _, known := range [][]string{wireComponents, wireTransports} {
		for _, name := range append([]string{"other"}, known[1:]...) {
			for n := range math.MaxUint8 + 1 {
				c := cursor.Cursor{B: appendNamed(nil, known, name, n)}
				gotName, gotN := readNamed(&c, known, len(name))
				require.False(t, c.Bad, "%q %d", name, n)
				require.Empty(t, c.B)
				require.Equal(t, name, gotName)
				require.Equal(t, n, gotN, name)
			}
		}
	}
}

// TestReadNamed_Code: a number without a name is rejected.
func TestReadNamed_Code(t *testing.T) {
	known := []string{"", "one", "two"}
	for code := range 5 {
		c := cursor.Cursor{B: []byte{byte(code<<4 | 3), 1, 'x'}}
		name, n := readNamed(&c, known, 8)
		assert.Equal(t, code >= len(known), c.Bad, code)
		assert.Equal(t, 3, n)
		if code == 0 {
			assert.Equal(t, "x", name)
		} else if code < len(known) {
			assert.Equal(t, known[code], name)
		}
	}
}

// TestReadName: a name that is too long or has bytes that are not printable is rejected.
func TestReadName(t *testing.T) {
	for name, ok := range map[string]bool{"abc": true, "abcd": false, "a\x00": false, "a\xff": false, "abc\n": false} {
		c := cursor.Cursor{B: append([]byte{byte(len(name))}, name...)}
		got := readName(&c, 3)
		assert.Equal(t, !ok, c.Bad, "%q", name)
		if ok {
			assert.Equal(t, name, got)
		}
	}
}
