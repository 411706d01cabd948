package uctlayer

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
)

func TestInbox_RetainsNoBuffer(t *testing.T) {
	in := newInbox(layer.Spec{Size: 8})
	assert.False(t, in.HandleAM(make([]byte, 8), nil))
	assert.Equal(t, uint64(1), in.Count)
	assert.NoError(t, in.Err)
}

func TestWord_RejectsOtherLengths(t *testing.T) {
	w := &word{}
	w.HandleAM(binary.LittleEndian.AppendUint64(nil, 9), nil)
	assert.Equal(t, uint64(9), w.value)
	w.HandleAM(make([]byte, 7), nil)
	assert.ErrorIs(t, w.err, layer.ErrData)
	assert.Equal(t, uint64(1), w.count)
}
