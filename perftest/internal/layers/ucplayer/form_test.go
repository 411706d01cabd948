package ucplayer

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucs"
)

func TestPieces_AreTheBuffer(t *testing.T) {
	for n := 1; n < 20; n++ {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i)
		}
		list := pieces(b)
		assert.Len(t, list, min(n, listPieces))
		assert.Equal(t, b, slices.Concat(list...))
		for _, p := range list {
			assert.NotEmpty(t, p)
		}
	}
}

func TestForm_TakesWhatFits(t *testing.T) {
	f := newForm(layer.Generic, make([]byte, 4))
	assert.NoError(t, f.UnpackAt(0, []byte("abc")))
	assert.ErrorIs(t, f.UnpackAt(3, []byte("de")), ucs.ErrTruncated)
	assert.NoError(t, f.UnpackAt(3, []byte("d")))
	assert.Equal(t, []byte("abcd"), f.buf)
	assert.ErrorIs(t, f.Finish(ucs.ErrTruncated), ucs.ErrTruncated)
}

// TestForm_IsWhatItsLayoutSays: data of a list and of callbacks is not in one piece, so
// that ucp takes the way that is measured.
func TestForm_IsWhatItsLayoutSays(t *testing.T) {
	b := bytes.Repeat([]byte{7}, 100)
	for l, want := range map[layer.Layout]struct{ contiguous, generic bool }{
		layer.Contig: {true, false}, layer.IOV: {false, false}, layer.Generic: {false, true},
	} {
		f := newForm(l, b)
		out, in := f.outgoing(), f.incoming()
		_, contiguous := out.Contiguous()
		assert.Equal(t, want.contiguous, contiguous, l)
		_, contiguous = in.Contiguous()
		assert.Equal(t, want.contiguous, contiguous, l)
		assert.Equal(t, want.generic, out.Generic(), l)
		assert.Equal(t, want.generic, in.Generic(), l)
		assert.Equal(t, len(b), out.Len(), l)
	}
}
