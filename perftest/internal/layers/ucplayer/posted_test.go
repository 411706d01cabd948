package ucplayer

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSlotsOf(t *testing.T) {
	for _, tc := range []struct {
		name               string
		size, window, want int
	}{
		{"a ping-pong replies before it posts", 8, 1, 2},
		{"a ping-pong up to spareLen", spareLen, 1, 2},
		{"a ping-pong above spareLen", spareLen + 1, 1, 1},
		{"a window of small messages", 8, 127, 127},
		{"a window beyond the caches", 64 << 10, 256, cachedLen / (64 << 10)},
		{"a few of any length", 1 << 20, 256, fewSlots},
		{"limited by memory", 4 << 20, 256, 2},
		{"one of any length", 64 << 20, 256, 1},
	} {
		assert.Equal(t, tc.want, slotsOf(tc.size, tc.window), tc.name)
	}
}
