package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBuffers_Classes: each length has the class of the smallest buffer that is large enough, and the buffer is at most
// a quarter larger.
func TestBuffers_Classes(t *testing.T) {
	require.Equal(t, 1<<minBufferBits, sizeOf(0))
	require.Equal(t, 1<<maxBufferBits, sizeOf(bufferClasses-1))
	for c := 1; c < bufferClasses; c++ {
		shorter, size := sizeOf(c-1), sizeOf(c)
		require.Less(t, shorter, size)
		for _, n := range []int{shorter + 1, size - 1, size} {
			require.Equal(t, c, classOf(n), "%d bytes", n)
		}
		require.LessOrEqual(t, 4*size, 5*(shorter+1))
	}
	assert.Equal(t, 0, classOf(0))
	assert.GreaterOrEqual(t, classOf(1<<maxBufferBits+1), bufferClasses)
	assert.GreaterOrEqual(t, classOf(1<<40), bufferClasses)
}

// TestBuffers_Reuse: a buffer that is returned is the next one of its class. The pool frees buffers beyond the limit.
func TestBuffers_Reuse(t *testing.T) {
	var b buffers
	buf := b.get(1000)
	require.Len(t, buf, 1000)
	require.Equal(t, 1024, cap(buf))
	b.put(buf[:3])
	require.Equal(t, 1024, b.idle)
	again := b.get(900)
	require.Same(t, &buf[0], &again[0])
	require.Zero(t, b.idle)
	b.put(make([]byte, maxIdleBuffers))
	b.put(again)
	require.Equal(t, maxIdleBuffers, b.idle)
}
