package info

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestCount_QPs: n interfaces of a node that share a domain need 1/n of the QPs of rc, and a target for each
// interface of the other node.
func TestCount_QPs(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine connects all")
	}
	const n = 4
	got := map[string]connected{}
	for _, k := range kinds(layers.Config{}) {
		r, err := k.count(device.Fabrics()[0], n)
		require.NoError(t, err)
		assert.Equal(t, n*n, r.EPs, k.label)
		got[r.Transport] = r
	}
	require.Len(t, got, 3)
	assert.Equal(t, n*n, got["rc"].QPs)
	assert.Equal(t, n*n, got["xrc"].QPs)
	assert.Zero(t, got["rc"].Targets)
	shared := got["xrc, shared domain"]
	assert.Equal(t, n, shared.QPs-shared.Targets)
	assert.Equal(t, n, shared.Targets)
	assert.Less(t, shared.Bytes.QPs, got["rc"].Bytes.QPs)
}

// TestConnections_Width: without a terminal the table is at most 80 columns wide.
func TestConnections_Width(t *testing.T) {
	r := connected{Transport: "xrc, shared domain", Ifaces: 8, EPs: 64}
	r.QPs, r.Targets, r.SRQs, r.CQs, r.Bytes.QPs = 64, 8, 8, 8, 5348<<10
	var out bytes.Buffer
	require.NoError(t, connectedSheet([]connected{r}).Write(&out, "table"))
	assert.LessOrEqual(t, sheet.TextWidth(out.String()), 80)
	assert.NotContains(t, out.String(), "Left out")
}
