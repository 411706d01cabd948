package wire

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestShortActive_KeepsNamesThatFit: who sends has to compare, since a name is the peer's.
func TestShortActive_KeepsNamesThatFit(t *testing.T) {
	for _, name := range []uint64{1, 1<<NameBits - 1, 1 << NameBits, math.MaxUint64} {
		word := ShortActive(name) | 0xffff
		assert.Equal(t, name < 1<<NameBits, ShortName(word) == name)
		assert.EqualValues(t, 0xffff, ShortID(word))
	}
}
