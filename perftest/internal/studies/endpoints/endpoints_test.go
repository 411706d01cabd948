package endpoints

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

func loop(t *testing.T) *verbs.Device {
	t.Helper()
	devs, err := device.List("loop")
	require.NoError(t, err)
	return devs[0]
}

// The resources for sixteen threads are those in the figure of the study.
func TestResources_SixteenThreads(t *testing.T) {
	s := Study{Categories: endpoint.Categories(), Threads: []int{16}}
	rows, err := s.Resources(loop(t))
	require.NoError(t, err)
	require.Len(t, rows, 6)
	want := []struct {
		uuars  int
		share  float64
		wasted int
	}{{256, 1, 240}, {80, 0.3125, 64}, {48, 0.1875, 32}, {32, 0.125, 16}, {16, 0.0625, 1}, {16, 0.0625, 15}}
	for i, w := range want {
		r := rows[i]
		assert.Equal(t, w.uuars, r.UUARs, r.Category)
		assert.Equal(t, w.uuars, 2*r.UARPages, r.Category)
		assert.Equal(t, w.share, r.Share, r.Category)
		assert.Equal(t, w.wasted, r.Wasted, r.Category)
		assert.Zero(t, r.Rate)
	}
	assert.Equal(t, 2*rows[2].QPs, rows[1].QPs)
	assert.Less(t, rows[5].Memory, rows[2].Memory, "one QP takes less memory than sixteen")
	assert.Less(t, rows[2].Memory, rows[1].Memory)
}

func TestRun(t *testing.T) {
	s := Study{Base: msgrate.Config{Messages: 200, Postlist: 1, Unsignaled: 1, Inline: true},
		Categories: endpoint.Categories(), Threads: []int{1, 2, 4}, Rounds: 1}
	steps := 0
	rows, err := s.Run(t.Context(), msgrate.On{Rig: &msgrate.RealTime{Fabric: softhca.FabricLoop}}, func(string) { steps++ })
	require.NoError(t, err)
	require.Len(t, rows, 18)
	assert.Equal(t, 18, steps)
	for _, r := range rows {
		assert.Positive(t, r.Rate, r)
		assert.Positive(t, r.Relative, r)
		if r.Category == endpoint.MPIEverywhere {
			assert.Equal(t, 1., r.Relative)
		}
	}
}

// Threads share a CQ only within a context.
func TestCases_SharedCQ(t *testing.T) {
	s := Study{Categories: endpoint.Categories(), Threads: []int{8}, CQ: 4}
	rows, err := s.Resources(loop(t))
	require.NoError(t, err)
	var cqs []int
	for _, r := range rows {
		cqs = append(cqs, r.CQs)
	}
	assert.Equal(t, []int{8, 4, 2, 2, 2, 1}, cqs)
}

func TestObjectSizes(t *testing.T) {
	b, err := ObjectSizes(loop(t))
	require.NoError(t, err)
	for _, n := range []int64{b.Contexts, b.PDs, b.MRs, b.CQs, b.QPs, b.TDs} {
		assert.Positive(t, n, b)
	}
	assert.GreaterOrEqual(t, b.QPs, int64(64*64), "64 work requests of 64 bytes")
	assert.GreaterOrEqual(t, b.CQs, int64(64*64))
	assert.GreaterOrEqual(t, b.UARs, int64(4096))
	assert.Less(t, b.UARs, int64(8192))
}

func TestSheet(t *testing.T) {
	rows := []Row{{Threads: 2, Category: endpoint.Static, Rate: 1.5e6, Relative: 0.5, UUARs: 16}}
	for _, format := range sheet.Formats() {
		var out bytes.Buffer
		require.NoError(t, Sheet(map[string]string{"k": "v"}, []string{"head"}, rows, true).Write(&out, format))
		assert.Contains(t, out.String(), "Static", format)
		if format == "json" {
			var back Row
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &back))
			assert.Equal(t, rows[0], back)
		}
	}
	var out bytes.Buffer
	require.NoError(t, Sheet(nil, nil, rows, false).Write(&out, "csv"))
	assert.NotContains(t, out.String(), "msg_per_s")
}

// once measures one case.
type once struct {
	msgrate.Measurer
	done bool
}

var errOnce = errors.New("no more")

func (o *once) Measure(ctx context.Context, q mlx5.Config, c msgrate.Config) (msgrate.Outcome, error) {
	if o.done {
		return msgrate.Outcome{}, errOnce
	}
	o.done = true
	return o.Measurer.Measure(ctx, q, c)
}

// TestRun_ReturnsMeasuredRowsAfterError: an error comes with the measured rows.
func TestRun_ReturnsMeasuredRowsAfterError(t *testing.T) {
	s := Study{Base: msgrate.Config{Messages: 64, Postlist: 1, Unsignaled: 1}, Categories: []endpoint.Category{endpoint.Static, endpoint.Dynamic},
		Threads: []int{1}, Rounds: 3}
	rows, err := s.Run(t.Context(), &once{Measurer: msgrate.On{Rig: &msgrate.RealTime{Fabric: softhca.FabricLoop}}}, nil)
	require.ErrorIs(t, err, errOnce)
	require.Len(t, rows, 1)
	assert.Equal(t, endpoint.Static, rows[0].Category)
	assert.Equal(t, 1, rows[0].Rounds)
	assert.Positive(t, rows[0].Rate)
}
