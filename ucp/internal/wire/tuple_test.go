package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTuple(t *testing.T) {
	want := Tuple{EP: 1, Tag: 2, Value: 3, Kind: TupleClosed, Number: 4}
	b := want.Append(nil)
	require.Len(t, b, TupleLen)
	assert.Equal(t, []byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 4, 0, 0, 0}, b)
	var got Tuple
	require.True(t, got.Unpack(b))
	assert.Equal(t, want, got)
	assert.False(t, got.Unpack(b[:TupleLen-1]), "a byte too few")
	assert.False(t, got.Unpack(append(b, 0)), "a byte too many")
	for _, kind := range []byte{0, byte(TupleResent) + 1} {
		b[24] = kind
		assert.False(t, got.Unpack(b), "kind %d", kind)
	}
}

func FuzzTuple(f *testing.F) {
	m := Tuple{EP: 1, Tag: 2, Value: 3, Kind: TupleOpen, Number: 4}
	f.Add(m.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Tuple
		if m.Unpack(b) {
			assert.Equal(t, b, m.Append(nil))
		}
	})
}
