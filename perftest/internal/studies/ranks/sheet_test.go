package ranks

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
		slow := Row{Test: "reducescatter", Size: 1 << 20, Ranks: 16, Protocol: "put_zcopy", MeanNS: ns, LeastNS: ns, MostNS: ns, BestNS: ns}
		quick := slow
		quick.Protocol, quick.BestNS = "auto", ns/3
		var out strings.Builder
		require.NoError(t, Sheet(nil, nil, []Row{slow, quick}).Write(&out, "table"))
		assert.LessOrEqual(t, sheet.TextWidth(out.String()), 80, out.String())
	}
}
