package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/studies/crossover"
)

// fewMessages are flags of a short crossover, whose times are meaningless.
var fewMessages = strings.Fields("crossover -q --memory alloc,mapped,plain -n 4 -w 1 --rounds 2 -o json --again 0 -s 8,2k,64k")

// TestCrossover_Rows: each row has a time for each protocol, and the protocol of Explain. Any choice is within the
// limit.
func TestCrossover_Rows(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	for _, transport := range []string{"sm", "tcp", "rc", "rc_mlx5"} {
		t.Run(transport, func(t *testing.T) {
			if transport != "sm" {
				testenv.SkipSweep(t, "one more transport")
			}
			code, out, errs := perftest(t, with(fewMessages, "-x", transport, "--limit", "1e9")...)
			require.Equal(t, exitOK, code, errs)
			d := json.NewDecoder(strings.NewReader(out))
			var c crossoverConditions
			require.NoError(t, d.Decode(&c))
			assert.Equal(t, 4, c.Iterations)
			rows := 0
			for ; d.More(); rows++ {
				var r crossover.Row
				require.NoError(t, d.Decode(&r))
				assert.Equal(t, transport, r.Transport)
				for _, p := range crossoverProtocols() {
					assert.Positive(t, r.NS[p], "%s of %+v", p, r)
				}
				assert.NotEmpty(t, r.Uses)
				assert.GreaterOrEqual(t, r.NS[crossover.Auto], r.NS[r.Best])
			}
			assert.Equal(t, 3*2*len(layer.MemoryNames()), rows, "sizes, tests, classes of memory")
		})
	}
}

func TestLossError(t *testing.T) {
	var x crossover.Table
	x.Add("mapped", []result.Record{{Transport: "sm", Test: "tag_lat", Layer: "ucp", Size: 8, LeastNS: 300}, {Transport: "sm", Test: "tag_lat", Layer: "eager", Size: 8, LeastNS: 200}},
		layerProtocol, func(string, int) string { return "get_zcopy" })
	assert.NoError(t, lossError(&x, 50))
	assert.EqualError(t, lossError(&x, 49), "auto loses more than 49 % in 1 of 1 rows; most over sm, memory mapped, tag_lat of 8 bytes: 50 %, as it uses get_zcopy and not eager")
}

func TestCrossover_Refuses(t *testing.T) {
	refuses(t, "crossover", map[string]string{
		"-x nothing":    `no transport "nothing"`,
		"-x sm,sm":      "duplicate transport",
		"--memory heap": `unknown memory "heap"`,
		"-t put_lat":    "it is not a test of messages",
		"-s 0":          "outside 1..",
		"--limit -1":    "at least 0",
		"-o yaml":       "unknown output format",
		"-n 0":          "at least 1",
		"-c 0":          "want two",
	})
}
