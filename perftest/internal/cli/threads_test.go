package cli

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// TestThreads measures with two processes, whose goroutines share a worker.
func TestThreads(t *testing.T) {
	for _, transport := range []string{"sm", "tcp", "rc"} {
		t.Run(transport, func(t *testing.T) {
			if transport != "sm" {
				testenv.SkipShort(t, furtherRun)
			}
			code, out, errs := perftest(t, strings.Fields("-q -T 1,2 -M serialized,multi -t put_lat,get_bw,am_lat,tag_mr -s 8 -n 8 -w 4 --rounds 2 -W 4 -o csv -x "+transport)...)
			require.Equal(t, exitOK, code, errs)
			rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
			require.NoError(t, err, "%s", out)
			require.Equal(t, []string{"test", "size", "mode", "threads", "thread", "ns"}, rows[0][:6])
			require.Len(t, rows, 1+2*2*4, "several numbers of threads: only rows of all threads together")
			for _, r := range rows[1:] {
				assert.Equal(t, "all", r[4])
				assert.NotEqual(t, "0", r[5], "%v", r)
			}
		})
	}
}

// Pairs of processes measure concurrently, as threads of one process do.
func TestThreads_Pairs(t *testing.T) {
	code, out, errs := perftest(t, strings.Fields("-q --pairs 1,2 -t tag_mr,put_lat -s 8 -n 8 -w 4 --rounds 2 -W 4 -o csv -x sm")...)
	require.Equal(t, exitOK, code, errs)
	for _, want := range []string{"tag_mr,8,processes,1,all,", "tag_mr,8,processes,2,all,", "put_lat,8,processes,2,all,"} {
		assert.Contains(t, out, want)
	}
}

// A batch rejects threads, in a line and for all lines.
func TestThreads_NotInBatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(file, []byte("a -x sm -t put_lat -s 8 -T 2\n"), 0o600))
	code, _, errs := perftest(t, "-b", file)
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "line 1 (a): -T and -M")

	require.NoError(t, os.WriteFile(file, []byte("a -x sm -t put_lat -s 8 -n 8 -q\n"), 0o600))
	for _, flags := range [][]string{{"-T", "2"}, {"-M", "multi"}} {
		code, _, errs = perftest(t, with(flags, "-b", file)...)
		assert.Equal(t, exitUsage, code, flags)
		assert.Contains(t, errs, "line 1 (a): -T and -M", flags)
	}
}

// With one number of threads and one mode there is a row for each thread.
func TestThreads_Each(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	code, out, errs := perftest(t, strings.Fields("-q -T 2 -t tag_lat,ucp_put_mr -s 8 -n 8 -w 4 --rounds 2 -o csv -x sm")...)
	require.Equal(t, exitOK, code, errs)
	for _, want := range []string{"tag_lat,8,single,2,all,", "tag_lat,8,single,2,0,", "tag_lat,8,single,2,1,", "put_mr,8,single,2,1,"} {
		assert.Contains(t, out, want)
	}
	code, out, errs = perftest(t, strings.Fields("-q -T 2 -M multi -t am_mr -s 8 -n 8 --rounds 2 -x sm")...)
	require.Equal(t, exitOK, code, errs)
	assert.Contains(t, out, "ucp over sm; two processes")
}

// Flags that cannot be used with threads are rejected, with the reason.
func TestThreads_Refuses(t *testing.T) {
	refuses(t, "", map[string]string{
		"-T 2 -t flush":           "flush does not run with threads; there are am_lat",
		"-T 2 -t put_pp":          "put_pp does not run with threads",
		"-T 2 -t fadd_lat":        "fadd_lat does not run with threads",
		"-T 2 -t stream_bw":       "stream_bw does not run with threads",
		"-T 2 -U -t tag_lat":      "--unexpected cannot be used",
		"-T 2 -D iov":             "--data-layout cannot be used",
		"-T 2 -c 0,1":             "--cpus cannot be used",
		"-T 2 --counters":         "--counters cannot be used",
		"-T 2 --stop-peer":        "--stop-peer cannot be used",
		"-T 2 --plot a.svg":       "--plot cannot be used",
		"-T 2 --registered":       "--registered cannot be used",
		"-T 2 --memory plain":     "--memory cannot be used",
		"-T 2 --layers uct":       "the layer ucp only",
		"-T 2 -x self":            "self does not leave its worker",
		"-T 2 -x sm,tcp":          "one transport at a time",
		"-T 2 -f loop":            "there is none",
		"-T 0":                    "0 threads are outside 1..256",
		"-T 257":                  "257 threads are outside 1..256",
		"-T two":                  "two",
		"-T 2 -M both":            `thread mode "both": there are single, serialized, multi, processes`,
		"-M multi":                "needs a number of goroutines",
		"--pairs 2 -T 2":          "--pairs N sets -T N -M processes",
		"--pairs 0":               "0 threads are outside 1..256",
		"-T 2 -o yaml":            "unknown output format",
		"client -T 2":             "unknown shorthand flag",
		"-T 2 -s 128m -t put_lat": "size 134217728 is outside",
		"-T 2 -x nothing":         "nothing",
		"-T 2 -n 0":               "0 iterations",
	})
}
