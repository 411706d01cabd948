package ranks

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWriteOSU(t *testing.T) {
	var b strings.Builder
	rows := []Row{
		{Test: "pingpong", Size: 8, Ranks: 4, MeanNS: 1230},
		{Test: "pingpong", Size: 1024, Ranks: 4, MeanNS: 2000},
		{Test: "mbw_mr", Size: 1000, Ranks: 4, MeanNS: 500},
		{Test: "allreduce", Size: 8, Ranks: 4, MeanNS: 10_000, LeastNS: 9000, MostNS: 11_000},
	}
	require.NoError(t, WriteOSU(&b, rows, 200))
	assert.Equal(t, `# OSU gucx Latency Test
# Size          Latency (us)
8                       1.23
1024                    2.00

# OSU gucx Multiple Bandwidth / Message Rate Test
# [ pairs: 2 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
1000                 4000.00        4000000.00

# OSU gucx Allreduce Latency Test
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)        Iterations
8                      10.00              9.00             11.00               200
`, b.String())
}
