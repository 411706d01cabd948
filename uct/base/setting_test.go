package base

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

func TestSettle(t *testing.T) {
	for _, c := range []struct {
		in, want int
		ok       bool
	}{{0, 7, true}, {1, 1, true}, {9, 9, true}, {10, 0, false}, {-1, 0, false}} {
		n := c.in
		err := SetDefault("N", &n, 7, 1, 9)
		if !c.ok {
			assert.ErrorIs(t, err, uct.ErrInvalidParam)
			assert.ErrorContains(t, err, "not in [1, 9]")
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, c.want, n)
	}
	size := config.MemSize(config.MemAuto)
	require.NoError(t, SetDefault("SIZE", &size, 4096, 1, 1<<20))
	assert.EqualValues(t, 4096, size)
	d := 2 * time.Hour
	assert.ErrorContains(t, SetDefault("D", &d, time.Second, time.Millisecond, time.Hour), "D 2h0m0s not in [1ms, 1h0m0s]")
}
