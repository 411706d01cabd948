package table

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca/internal/xrcdomain"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// TestClaimed_Splits: SplitClaim returns the device and the receive of a claim word.
func TestClaimed_Splits(t *testing.T) {
	id := ClaimID([2]uint64{1, 0xfedc_ba98_7654_3210})
	assert.NotZero(t, id)
	for _, seq := range []uint16{0, 1, 0xffff} {
		gotID, gotSeq := SplitClaim(Claimed(id, seq))
		assert.Equal(t, id, gotID)
		assert.Equal(t, seq, gotSeq)
	}
}

// TestStateWord_EpochOfEachConnection: only a reset and a connection begin another epoch.
func TestStateWord_EpochOfEachConnection(t *testing.T) {
	var w StateWord
	for _, tc := range []struct {
		to    verbs.QPState
		epoch uint32
	}{
		{verbs.QPStateInit, 0}, {verbs.QPStateRTR, 1}, {verbs.QPStateRTS, 1}, {verbs.QPStateErr, 1}, {verbs.QPStateReset, 2},
	} {
		w = w.To(tc.to)
		assert.Equal(t, tc.to, w.State())
		assert.Equal(t, tc.epoch, w.Epoch())
	}
	assert.Equal(t, verbs.QPStateErr, StateWord(0xff).State(), "none")
}

func TestDomainKey(t *testing.T) {
	var k DomainKey
	_, ok := k.Load()
	assert.False(t, ok)
	key := xrcdomain.Key{Dev: 7, Ino: 9}
	k.Store(key)
	got, ok := k.Load()
	require.True(t, ok)
	assert.Equal(t, key, got)
	assert.True(t, k.Is(key))
	assert.False(t, k.Is(xrcdomain.Key{Dev: 7, Ino: 8}))
}
