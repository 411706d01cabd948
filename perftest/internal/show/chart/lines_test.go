package chart

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSaveLines(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine draws, as in every build")
	}
	panels := []Lines{{Title: "shared CQ", X: "ways", Y: "M msg/s", Series: []Series{
		{Name: "all", X: []float64{1, 2, 16}, Y: []float64{3, 2, 1}},
		{Name: "alone", X: []float64{1}, Y: []float64{3}},
	}}}
	for _, name := range []string{"a.svg", "a.png"} {
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, SaveLines(file, panels))
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		if name == "a.svg" {
			assert.Contains(t, string(raw), "shared CQ")
			assert.Contains(t, string(raw), "alone")
		}
	}
	assert.Error(t, SaveLines("a.pdf", panels))
	assert.Error(t, SaveLines(filepath.Join(t.TempDir(), "a.svg"), nil))
}

func TestWholeNumbers(t *testing.T) {
	assert.Equal(t, []string{"0", "250", "500"}, labels(wholeNumbers{}.Ticks(0, 550)))
	for _, l := range labels(wholeNumbers{}.Ticks(0, 1)) {
		assert.NotEqual(t, "1.00", l)
	}
}

func TestLines_LargeNumbersHaveUnits(t *testing.T) {
	l := Lines{Series: []Series{{Name: "a", X: []float64{1, 4096}}}}
	assert.Equal(t, sizeTicks{}, l.ticks())
	l.Series[0].X = []float64{1, 16}
	assert.Equal(t, doublings{}, l.ticks())
}
