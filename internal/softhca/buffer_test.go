package softhca

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

// TestAllocBuffer_Arena: the whole arena can be allocated, a full arena returns ErrNoMemory, and
// reused memory is zero.
func TestAllocBuffer_Arena(t *testing.T) {
	page := os.Getpagesize()
	h, err := open(Config{Fabric: FabricShm, ArenaLen: 4 * int64(page)}, &uarPool{})
	require.NoError(t, err)
	defer func() { require.NoError(t, h.Close()) }()
	_, err = h.AllocBuffer(4*page + 1)
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
	b, err := h.AllocBuffer(4*page - 7)
	require.NoError(t, err)
	require.Len(t, b.Bytes(), 4*page-7)
	b.Bytes()[page] = 0xaa
	_, err = h.AllocBuffer(1)
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
	require.NoError(t, b.Close())
	require.NoError(t, b.Close(), "idempotent")
	b, err = h.AllocBuffer(4 * page)
	require.NoError(t, err)
	assert.Equal(t, make([]byte, 4*page), b.Bytes())
	require.NoError(t, b.Close())
}
