package wire

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/ucs"
)

// TestShortActive: the id of a connection can be unpacked from the word if its lower half has at most 16 bits.
// Otherwise the sender detects that it cannot.
func TestShortActive(t *testing.T) {
	for _, ep := range []uint64{1 << 32, 1<<32 | 1, 0xfedcba98_0000ffff, 0xfedcba98_00010000, math.MaxUint64} {
		word := ShortActive(ep) | 0xffff
		assert.Equal(t, uint32(ep) <= math.MaxUint16, ShortEP(word) == ep, "%#x", ep)
		assert.EqualValues(t, 0xffff, ShortID(word))
	}
	assert.Equal(t, uint64(0xfedcba98_76540000), ShortActive(0xfedcba98_00007654))
}

// TestStatus_OfAPeer: an operation that a peer reports as complete is not in progress.
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
