package bulk

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestMeasure: the figure stays for the process, and is one of memory and not of a clock that
// did not tick: a processor copies between 100 MB/s and 10 TB/s in its caches.
func TestMeasure(t *testing.T) {
	bw := Measure()
	assert.Equal(t, bw, Measure())
	if bw == 0 {
		t.Skip("the clock is too coarse")
	}
	assert.Greater(t, bw, uint64(1e8))
	assert.Less(t, bw, uint64(1e13))
	t.Logf("%.1f GB/s", float64(bw)/1e9)
}
