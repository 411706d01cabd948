package threads

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// TestSheet_Width: without a terminal the table is at most 80 columns wide, for all results.
func TestSheet_Width(t *testing.T) {
	for _, ns := range []float64{1, 1e6, 1e9, 1e11} {
		r := Row{Test: "tag_sync_lat", Size: 1 << 20, Mode: Serialized, Threads: 128, Thread: All,
			NS: ns, Rate: 1e9 / ns, MiB: 1e9 / ns, Slowest: 1e9 / ns, Fastest: 1e9 / ns}
		var out strings.Builder
		require.NoError(t, Sheet(nil, nil, []Row{r}, true).Write(&out, "table"))
		assert.LessOrEqual(t, sheet.TextWidth(out.String()), 80, out.String())
		assert.NotContains(t, out.String(), " 0.000 ", "a small rate must not be printed as 0")
	}
}
