package shortcopy_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/shortcopy"
)

// TestCopy: as copy does, for all lengths around the short ones, and where both overlap.
func TestCopy(t *testing.T) {
	const most = 40
	source := func() []byte {
		b := make([]byte, 2*most)
		for i := range b {
			b[i] = byte(i + 1)
		}
		return b
	}
	for to := range most {
		for from := range most {
			for _, shift := range []int{-5, 0, 5, most} {
				got, want := source(), source()
				at := most / 2
				if shift == most {
					at, shift = 0, most
				}
				n := shortcopy.Copy(got[at+shift:at+shift+to], got[at:at+from])
				m := copy(want[at+shift:at+shift+to], want[at:at+from])
				what := fmt.Sprintf("%d to %d bytes %d further", from, to, shift)
				assert.Equal(t, m, n, what)
				assert.Equal(t, want, got, what)
			}
		}
	}
}
