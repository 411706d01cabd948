package compare

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPhaseOf: only the probes of a pair determine its phase, not earlier ones.
func TestPhaseOf(t *testing.T) {
	for _, c := range []struct {
		name   string
		probes []float64
		want   Phase
	}{
		{"loopback", nil, Alone},
		{"near", []float64{50, 55, 60}, Near},
		{"slow but near, with load on the other thread", []float64{90, 100, 118}, Near},
		{"far all the time", []float64{170, 200, 240}, Far},
		{"far in a bad phase", []float64{900, 1000, 1300}, Far},
		{"moved between", []float64{55, 240, 55}, Moved},
		{"moved back", []float64{240, 55, 55}, Moved},
		{"at the limits", []float64{80, 100, 120}, Near},
		{"beyond both", []float64{79, 100, 120}, Moved},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, phaseOf(c.probes, 120)) })
	}
}
