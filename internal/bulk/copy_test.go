package bulk

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/testenv"
)

func TestCopy_EveryLengthAndNothingBeside(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 4095, 4096, 4097, 8191, 8192, 8193, 65536, 1 << 20, 1<<20 + 1} {
		for _, skew := range []int{0, 1, 13} {
			src, dst := testenv.Pattern(n+skew, 1)[skew:], bytes.Repeat([]byte{0xee}, n+skew+1)
			assert.Equal(t, n, Copy(dst[skew:], src))
			assert.True(t, bytes.Equal(src, dst[skew:skew+n]), "%d+%d", n, skew)
			assert.Equal(t, byte(0xee), dst[skew+n], "one byte too many")
			if skew > 0 {
				assert.Equal(t, byte(0xee), dst[skew-1], "one byte too early")
			}
		}
	}
	assert.Equal(t, 3, Copy(make([]byte, 3), make([]byte, 9000)), "the shorter one counts")
}
