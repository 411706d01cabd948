package report

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// counted returns records with counters, except the last one.
func counted() []result.Record {
	put, get, none := latency("uct", 8, 75, ""), latency("ucp", 8, 78.25, "uct"), rate("uct", 8, "")
	put.Counters = &result.Counters{Ops: 1000,
		Caller: result.Usage{Events: map[string]float64{result.Syscalls: 0, result.Switches: 0.0001, result.Faults: 123.4}, Calls: map[string]float64{}},
		Rest:   result.Usage{Events: map[string]float64{result.Syscalls: 0.0004, result.Switches: 0}},
		Target: &result.Usage{Events: map[string]float64{result.Syscalls: 12.5, result.Switches: 1},
			Calls: map[string]float64{"write": 1, "read": 1, "recvfrom": 7, "epoll_pwait": 3, "futex": 0.5}}}
	get.Counters = &result.Counters{Ops: 1000,
		Caller: result.Usage{Events: map[string]float64{result.Switches: 2}},
		Rest:   result.Usage{Events: map[string]float64{result.Switches: 0.25}}}
	return []result.Record{put, get, none}
}

func TestWrite_CountersGolden(t *testing.T) {
	with := run
	with.Counters = &result.CounterSource{Name: "perf", Refused: []string{"bpf: operation not permitted"}}
	for _, format := range sheet.Formats() {
		t.Run(format, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, Write(&b, format, with, counted()))
			file := filepath.Join("testdata", "counters."+format)
			if *rewrite {
				require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), b.String())
		})
	}
}

func TestEventNames_HaveTitles(t *testing.T) {
	for _, name := range result.EventNames() {
		assert.NotEmpty(t, eventTitles[name], name)
	}
	assert.Len(t, eventTitles, len(result.EventNames()))
}
