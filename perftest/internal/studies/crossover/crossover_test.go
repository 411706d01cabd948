package crossover

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

func rec(layer string, size int, ns float64) result.Record {
	return result.Record{Transport: "sm", Test: "tag_lat", Layer: layer, Size: size, LeastNS: ns}
}

// same returns the names of protocols for layers of the same names.
func same(layer string) string { return layer }

func uses(string, int) string { return "bcopy" }

func TestTable(t *testing.T) {
	var x Table
	x.Add("alloc", []result.Record{rec(Auto, 8, 110), rec("eager", 8, 100), rec("am", 8, 200), rec(Auto, 64, 300), rec("eager", 64, 350), rec("am", 64, 200)}, same, uses)
	require.Len(t, x.Rows, 2)
	assert.Equal(t, "eager", x.Rows[0].Best)
	assert.InDelta(t, 10, x.Rows[0].LossPct, 1e-9)
	assert.Equal(t, "am", x.Rows[1].Best)
	assert.InDelta(t, 50, x.Rows[1].LossPct, 1e-9)
	assert.Equal(t, "bcopy", x.Rows[1].Uses)
	over := x.Over(5)
	require.Len(t, over, 2)
	assert.Equal(t, []int{64, 8}, []int{over[0].Size, over[1].Size}, "sizes in the order of the loss")
	assert.Empty(t, x.Over(50), "a loss equal to the limit is permitted")
	assert.Equal(t, []int{8, 64}, x.SizesOver(5, "sm", "alloc", "tag_lat"))
	assert.Empty(t, x.SizesOver(5, "sm", "plain", "tag_lat"))

	x.Add("alloc", []result.Record{rec(Auto, 64, 190), rec("am", 64, 210)}, same, uses)
	require.Len(t, x.Rows, 2, "a second run must not add a row")
	assert.Equal(t, map[string]float64{Auto: 190, "eager": 350, "am": 200}, x.Rows[1].NS, "the minima of both runs")
	assert.Equal(t, Auto, x.Rows[1].Best)
	assert.Zero(t, x.Rows[1].LossPct)
}

func TestSizes(t *testing.T) {
	assert.Equal(t, []int{8, 12, 16, 24, 32}, Sizes(8, 32))
	assert.Equal(t, []int{1, 2, 3, 4}, Sizes(1, 4))
}

const explained = `messages over sm memory, buffers that are not registered:
           1..104          short  in one call
         105..32767        bcopy  one copy
       32768..inf          rndv   am, the least time, 4360 ns;
                                  threshold: 4 ns
messages over sm memory, buffers of MemMap:
           1..inf          rndv   put_zcopy, RNDV_SCHEME=put_zcopy
messages over sm memory, buffers of MemAlloc:
           1..4573         bcopy  one copy
        4574..8191         rndv   get_zcopy, the least time, 275 ns;
                                  threshold: 663 ns, eager 663 ns
        8192..inf          rndv   am, the least time, 300 ns
active messages over sm memory, buffers of MemAlloc:
           1..8192         bcopy  one copy
        8193..inf          rndv   get_zcopy, the least time, 275 ns;
                                  threshold: handlers read one fragment without a copy
costs by which messages go over sm memory: measured
`

func TestExplained(t *testing.T) {
	for memory, want := range map[string]map[int]string{
		"plain":  {1: "short", 104: "short", 105: "bcopy", 32768: "am"},
		"mapped": {1: "put_zcopy", 1 << 30: "put_zcopy"},
		"alloc":  {4573: "bcopy", 4574: "get_zcopy", 8192: "am", 1 << 30: "am"},
	} {
		r := Explained(explained, memory)
		for n, p := range want {
			assert.Equal(t, p, r.Find("tag_lat", n), "%s %d", memory, n)
			if memory != "alloc" {
				assert.Equal(t, p, r.Find("am_lat", n), "%s %d: as other messages", memory, n)
			}
		}
	}
	active := Explained(explained, "alloc")
	assert.Equal(t, "bcopy", active.Find("am_lat", 8192))
	assert.Equal(t, "get_zcopy", active.Find("am_bw", 8193))
	assert.Empty(t, Explained(explained, "other").Find("tag_lat", 1))
}

func TestSheet(t *testing.T) {
	var x Table
	x.Add("alloc", []result.Record{rec(Auto, 64, 3000), rec("eager", 64, 2000)}, same, uses)
	var out strings.Builder
	require.NoError(t, Sheet(nil, nil, []string{Auto, "eager"}, x.Rows).Write(&out, "csv"))
	assert.Equal(t, "transport,memory,test,size,uses,auto_ns,eager_ns,best,loss_pct\nsm,alloc,tag_lat,64,bcopy,3000,2000,eager,50\n", out.String())
	out.Reset()
	require.NoError(t, Sheet(nil, nil, []string{Auto, "eager"}, x.Rows).Write(&out, "table"))
	assert.Contains(t, out.String(), "eager      50")
}
