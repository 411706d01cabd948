package chart

import (
	"encoding/xml"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

var conditions = result.Run{Machine: result.Machine{CPU: "Some CPU", Cores: 2}, Commit: "0123abcd"}

func sample() (records []result.Record) {
	for size := 1; size <= 1<<20; size *= 4 {
		for i, layer := range []string{"verbs", "uct", "ucp"} {
			r := result.Record{Layer: layer, Transport: "rc", Test: "put_lat", Size: size, Window: 1, LoopNS: float64(100 + size/50 + 5*i)}
			if i > 0 {
				r.Over, r.OverPct = "below", 5-float64(i)
			}
			records = append(records, r)
			r.Test, r.Window, r.MiBPerS = "put_bw", 256, float64(size)*float64(3-i)
			records = append(records, r)
		}
	}
	return append(records, result.Record{Layer: "verbs", Test: "flush", Window: 1})
}

func TestSave_SVGIsWellFormedAndNamesEverything(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine draws, as in every build")
	}
	file := filepath.Join(t.TempDir(), "a.svg")
	require.NoError(t, Save(file, conditions, sample()))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	d := xml.NewDecoder(strings.NewReader(string(text)))
	for err == nil {
		_, err = d.Token()
	}
	require.ErrorIs(t, err, io.EOF)
	for _, want := range []string{"put_lat", "put_bw", "verbs", "uct", "ucp", "64Ki", "overhead", "put_lat over rc", "Some CPU, 2 cores; gucx 0123abcd", "windows of 256"} {
		assert.Contains(t, string(text), want)
	}
	assert.NotContains(t, string(text), "flush", "a test of one size has no curve")
}

func TestSave_PNGDecodes(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine draws, as in every build")
	}
	file := filepath.Join(t.TempDir(), "a.png")
	require.NoError(t, Save(file, conditions, sample()))
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	require.NoError(t, err)
	assert.Greater(t, img.Bounds().Dy(), img.Bounds().Dx(), "four panels below each other")
}

func TestSave_Refuses(t *testing.T) {
	dir := t.TempDir()
	assert.ErrorContains(t, Save(filepath.Join(dir, "a.gif"), conditions, sample()), ".svg or .png")
	assert.ErrorContains(t, Save(filepath.Join(dir, "svg"), conditions, sample()), ".svg or .png")
	assert.ErrorIs(t, Save(filepath.Join(dir, "none", "a.svg"), conditions, sample()), os.ErrNotExist)

	empty := filepath.Join(dir, "a.svg")
	require.ErrorIs(t, Save(empty, conditions, nil), ErrNothing)
	one := []result.Record{{Layer: "verbs", Test: "put_lat", Size: 8, Window: 1, P50NS: 1}}
	require.ErrorIs(t, Save(empty, conditions, one), ErrNothing)
	assert.NoFileExists(t, empty)
}

func TestPanels_OneLayerHasNoOverhead(t *testing.T) {
	var records []result.Record
	for _, r := range sample() {
		if r.Layer == "verbs" && r.Test == "put_lat" {
			records = append(records, r)
		}
	}
	panels, err := panelsOf(conditions, records)
	require.NoError(t, err)
	assert.Len(t, panels, 1)
}

func TestSizeTicks(t *testing.T) {
	ticks := sizeTicks{}.Ticks(1, 1<<20)
	require.Len(t, ticks, 21)
	assert.Equal(t, "1", ticks[0].Label)
	assert.Empty(t, ticks[1].Label)
	assert.Equal(t, "4Ki", ticks[12].Label)
	assert.Equal(t, "1Mi", ticks[20].Label)
	assert.Equal(t, "512", sizeTicks{}.Ticks(512, 1024)[0].Label, "if there are few ticks, all have labels")
}

func TestCheck_OpensTheFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.svg")
	require.NoError(t, Check(file))
	assert.NoFileExists(t, file, "Check must not leave a file")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	require.NoError(t, Check(file))
	old, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "old", string(old), "Check must not change an existing file")
	assert.ErrorContains(t, Check(filepath.Join(dir, "a.gif")), ".svg or .png")
	assert.ErrorIs(t, Check(filepath.Join(dir, "none", "a.svg")), os.ErrNotExist)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d.png"), 0o700))
	assert.Error(t, Check(filepath.Join(dir, "d.png")))
}

// labels returns the labels of ticks.
func labels(ticks []plot.Tick) (all []string) {
	for _, t := range ticks {
		if t.Label != "" {
			all = append(all, t.Label)
		}
	}
	return all
}

func TestDecades(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   []string
	}{
		{60, 900, []string{"100", "200", "500"}},
		{72, 96, nil}, // set below: equal steps
		{150, 480, nil},
		{15, 25_000, []string{"100", "1k", "10k"}},
		{0.4, 30, []string{"0.5", "1", "2", "5", "10", "20"}},
	} {
		got := labels(decades{}.Ticks(c.lo, c.hi))
		assert.GreaterOrEqual(t, len(got), 2, "%v..%v: %v", c.lo, c.hi, got)
		if c.want != nil {
			assert.Equal(t, c.want, got)
		}
	}
}

// A curve with one value for all sizes has no range, and is drawn too.
func TestSave_FlatCurve(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine draws, as in every build")
	}
	records := sample()
	for i := range records {
		records[i].LoopNS, records[i].MiBPerS, records[i].OverPct = 100, 100, 1
	}
	require.NoError(t, Save(filepath.Join(t.TempDir(), "a.png"), conditions, records))
}

// The color of a layer does not depend on the other layers, and the lowest layer is first in the legend.
func TestStyle(t *testing.T) {
	assert.Equal(t, []string{"verbs", "uct", "ucp", "other"}, layersOf([]result.Record{{Layer: "other"}, {Layer: "ucp"}, {Layer: "uct"}, {Layer: "verbs"}}))
	alone, _ := styleOf("ucp", 0, 0)
	beside, _ := styleOf("ucp", 2, 1)
	assert.Equal(t, alone.Color, beside.Color)
	assert.NotEqual(t, alone.Dashes, beside.Dashes)
	assert.NotEqual(t, colorOf("uct", 0), colorOf("ucp", 0))
	assert.Equal(t, colorOf("a", 0), colorOf("b", len(colors)))
}

func TestPoints_HaveTheIntervalOfTheRounds(t *testing.T) {
	r := result.Record{Layer: "ucp", Transport: "sm", Size: 8, Window: 1, LoopNS: 100, MiBPerS: 10,
		RoundsNS: []float64{90, 95, 98, 99, 100, 101, 102, 105, 110}, Over: "uct", OverNS: 10, OverPct: 20, OverLoNS: 5, OverHiNS: 15}
	p := panel{value: meanNS}.points([]result.Record{r}, "ucp", "sm")
	require.Len(t, p.YErrors, 1)
	assert.Positive(t, p.YErrors[0].Low)
	assert.LessOrEqual(t, p.YErrors[0].High, 10.0)
	y, lo, hi, ok := overhead(r)
	assert.True(t, ok)
	assert.InDeltaSlice(t, []float64{20, 10, 30}, []float64{y, lo, hi}, 1e-9)
	_, lo, hi, ok = mibPerS(r)
	assert.True(t, ok)
	assert.True(t, lo < 10 && 10 < hi)
	assert.Empty(t, panel{value: meanNS}.points([]result.Record{r}, "ucp", "tcp").XYs)
}
