package wire

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/ucs"
)

// TestShortActive_KeepsNamesThatFit: who sends has to compare, since a name is the peer's.
func TestShortActive_KeepsNamesThatFit(t *testing.T) {
	for _, name := range []uint64{1, 1<<NameBits - 1, 1 << NameBits, math.MaxUint64} {
		word := ShortActive(name) | 0xffff
		assert.Equal(t, name < 1<<NameBits, ShortName(word) == name)
		assert.EqualValues(t, 0xffff, ShortID(word))
	}
}

// TestStatus_OfAPeer: what a peer says has ended is not in progress for who is told.
func TestStatus_OfAPeer(t *testing.T) {
	for value, want := range map[uint64]ucs.Status{
		0: ucs.StatusOK, uint64(ucs.StatusTruncated): ucs.StatusTruncated, uint64(ucs.StatusInProgress): ucs.StatusInternal,
		100: ucs.StatusInternal, 0xff: ucs.StatusInternal, 1 << 32: ucs.StatusInternal, math.MaxUint64: ucs.StatusInternal,
	} {
		c := Control{Value: value}
		assert.Equal(t, want, c.Status(), "%#x", value)
		a := Answer{Status: ucs.Status(value)}
		if b := a.Append(nil); value <= math.MaxUint8 {
			assert.True(t, a.Unpack(b))
			assert.Equal(t, want, a.Status, "%#x", value)
		}
	}
}
