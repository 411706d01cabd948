package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKV(t *testing.T) {
	code, out, errs := perftest(t, "kv", "-q", "--workloads", "b", "--clients", "2", "--records", "100", "--time", "20ms", "--rounds", "1", "--stores", "kv,kv-replicated", "-o", "csv")
	require.Equal(t, exitOK, code, errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3)
	assert.Contains(t, lines[0], "workload,clients,store,ops_per_s,p50_ns,p99_ns,server_cpu_ns")
	assert.Contains(t, lines[1], "B,2,kv,")
	assert.Contains(t, lines[2], "B,2,kv-replicated,")
}

func TestKV_RedisIsMissing(t *testing.T) {
	t.Setenv("PATH", "/nowhere")
	code, out, errs := perftest(t, "kv", "-q", "--stores", "redis")
	assert.Equal(t, exitSkipped, code)
	assert.Empty(t, out)
	assert.Contains(t, errs, "redis-server")
}

func TestKV_Refuses(t *testing.T) {
	refuses(t, "kv -q", map[string]string{
		"--workloads D":      "A, B, C",
		"--stores memcached": "kv-replicated",
		"--clients 65":       "64",
		"--records 1":        "10",
		"--value 0":          "1",
		"--time 0":           "1ms",
		"--rounds 0":         "100",
		"-o xml":             "format",
		"rest":               "unknown command",
	})
}
