package ucplayer

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

func TestPieces_CoverBuffer(t *testing.T) {
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

func TestForm_UnpacksUpToCapacity(t *testing.T) {
	f := newForm(layer.Generic, make([]byte, 4))
	assert.NoError(t, f.UnpackAt(0, []byte("abc")))
	assert.ErrorIs(t, f.UnpackAt(3, []byte("de")), ucs.ErrTruncated)
	assert.NoError(t, f.UnpackAt(3, []byte("d")))
	assert.Equal(t, []byte("abcd"), f.buf)
	assert.ErrorIs(t, f.Finish(ucs.ErrTruncated), ucs.ErrTruncated)
}

// TestForm_DataHasTheLayout: data of a list and of callbacks is not contiguous, so that ucp uses the code that is
// to be measured.
func TestForm_DataHasTheLayout(t *testing.T) {
	b := bytes.Repeat([]byte{7}, 100)
	for l, want := range map[layer.Layout]func(f *form) (out, in ucp.Data){
		layer.Contig:  func(*form) (out, in ucp.Data) { return ucp.Bytes(b), ucp.Bytes(b) },
		layer.IOV:     func(*form) (out, in ucp.Data) { return ucp.Buffers(pieces(b)), ucp.Buffers(pieces(b)) },
		layer.Generic: func(f *form) (out, in ucp.Data) { return ucp.From(f), ucp.To(f) },
	} {
		f := newForm(l, b)
		out, in := want(f)
		assert.Equal(t, out, f.outgoing(), l)
		assert.Equal(t, in, f.incoming(), l)
		assert.Equal(t, l == layer.Contig, reflect.DeepEqual(ucp.Bytes(b), out), l)
	}
}
