package pattern

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCheck_AcceptsPatternOfFill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := make([]byte, rapid.IntRange(0, 300).Draw(t, "len"))
		seed := rapid.Uint64().Draw(t, "seed")
		Fill(b, seed)
		require.NoError(t, Check(b, seed))
	})
}

func TestCheck_FindsOneFlippedBit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := make([]byte, rapid.IntRange(1, 300).Draw(t, "len"))
		seed := rapid.Uint64().Draw(t, "seed")
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		Fill(b, seed)
		b[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")

		var m *Mismatch
		require.ErrorAs(t, Check(b, seed), &m)
		require.Equal(t, at, m.Offset)
		require.Equal(t, b[at], m.Got)
	})
}

func TestFill_PrefixesAgreeAndNeighbouringSeedsDiffer(t *testing.T) {
	a, b := make([]byte, 64), make([]byte, 61)
	Fill(a, 1)
	Fill(b, 1)
	assert.Equal(t, a[:61], b)

	Fill(b, 2)
	equal := 0
	for i := range b {
		if a[i] == b[i] {
			equal++
		}
	}
	assert.Less(t, equal, 8)
	assert.Error(t, Check(make([]byte, 8), 0), "zeros pass the check")
	assert.Error(t, Check(a[8:], 1), "a shifted copy passes the check")
}

func TestMismatch_Error(t *testing.T) {
	m := &Mismatch{Offset: 3, Got: 0, Want: 0xab, Len: 8}
	assert.EqualError(t, m, "byte 3 of 8 is 0x00, want 0xab")
}
