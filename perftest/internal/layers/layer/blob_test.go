package layer

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func FuzzCutBlobs(f *testing.F) {
	f.Add([]byte{}, 0)
	f.Add([]byte{0, 1, 7, 0, 0}, 2)
	f.Add([]byte{0xff, 0xff, 1}, 1)
	f.Add([]byte{0, 0, 0}, 1)
	f.Fuzz(func(t *testing.T, in []byte, n int) {
		if n < 0 || n > 8 {
			return
		}
		blobs := make([][]byte, n)
		into := make([]*[]byte, n)
		for i := range blobs {
			into[i] = &blobs[i]
		}
		if CutBlobs(in, into...) != nil {
			return
		}
		again, err := AppendBlobs(nil, blobs...)
		require.NoError(t, err)
		assert.Equal(t, string(in), string(again), "the encoding is not unique")
	})
}

func TestAppendBlobs_RejectsTooLong(t *testing.T) {
	_, err := AppendBlobs(nil, make([]byte, math.MaxUint16))
	assert.NoError(t, err)
	_, err = AppendBlobs(nil, make([]byte, math.MaxUint16+1))
	assert.Error(t, err)
}

func TestParseRegion(t *testing.T) {
	r := Region{Addr: 0x7f00_0000_1000, Len: 64}
	got, err := ParseRegion(r.Append(nil), 64)
	require.NoError(t, err)
	assert.Equal(t, r, got)

	for _, c := range []struct {
		name string
		in   []byte
		need int
	}{
		{"too short", r.Append(nil)[1:], 1},
		{"too long", r.Append([]byte{0}), 1},
		{"too small a region", r.Append(nil), 65},
		{"wraps", Region{Addr: math.MaxUint64, Len: 2}.Append(nil), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseRegion(c.in, c.need)
			assert.ErrorIs(t, err, ErrAddress)
		})
	}
}
