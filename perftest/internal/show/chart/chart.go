// Package chart plots results by message size: one panel for each test, and below it a panel with the difference
// between each layer and the one below.
package chart

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/gucx/gucx/perftest/internal/measure/result"
	"github.com/gucx/gucx/perftest/internal/measure/stat"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
)

// ErrNothing is the error if no test was run at two sizes or more.
var ErrNothing = errors.New("nothing to draw: no test has two sizes or more")

// Check returns an error if Save could not write a file: the name must end with the name of a format, and the file must
// be writable. It does not create the file.
func Check(file string) error {
	if err := checkName(file); err != nil {
		return err
	}
	_, missing := os.Stat(file)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	err = f.Close()
	if errors.Is(missing, os.ErrNotExist) {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

func checkName(file string) error {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".svg", ".png":
		return nil
	}
	return fmt.Errorf("plot %q: the name must end in .svg or .png", file)
}

// Save plots the records of a run into a file. The name must pass Check.
func Save(file string, run result.Run, records []result.Record) error {
	if err := checkName(file); err != nil {
		return err
	}
	panels, err := panelsOf(run, records)
	if err != nil {
		return err
	}
	return save(file, panels)
}

// save writes drawings to a file.
func save(file string, panels []*drawing) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return render(f, strings.EqualFold(filepath.Ext(file), ".svg"), panels)
}

// figure returns the value of a record in a panel, with the bounds of its interval; ok is false if there is none.
type figure func(result.Record) (y, lo, hi float64, ok bool)

// meanNS returns the median of the rounds.
func meanNS(r result.Record) (y, lo, hi float64, ok bool) {
	lo, hi = stat.Interval(r.RoundsNS)
	if lo == 0 {
		lo, hi = r.LoopNS, r.LoopNS
	}
	return r.LoopNS, lo, hi, r.LoopNS > 0
}

// mibPerS returns the bandwidth of the same median.
func mibPerS(r result.Record) (y, lo, hi float64, ok bool) {
	ns, shortest, longest, ok := meanNS(r)
	if !ok || r.MiBPerS <= 0 {
		return 0, 0, 0, false
	}
	return r.MiBPerS, r.MiBPerS * ns / longest, r.MiBPerS * ns / shortest, true
}

// overhead returns the overhead in percent of the time of the layer below.
func overhead(r result.Record) (y, lo, hi float64, ok bool) {
	if r.OverNS == 0 || r.OverLoNS == 0 && r.OverHiNS == 0 {
		return r.OverPct, r.OverPct, r.OverPct, r.Over != ""
	}
	perNS := r.OverPct / r.OverNS
	return r.OverPct, r.OverLoNS * perNS, r.OverHiNS * perNS, r.Over != ""
}

// panelsOf returns the panels for every test with at least two sizes.
func panelsOf(run result.Run, records []result.Record) (panels []*drawing, err error) {
	for _, test := range swept(records) {
		mine := slices.DeleteFunc(slices.Clone(records), func(r result.Record) bool { return r.Test != test })
		top := panel{title: test + caption(run, mine), y: "bandwidth, MiB/s", value: mibPerS, logY: true}
		if mine[0].Latency() {
			top.y, top.value = "time of one operation, ns", meanNS
		}
		below := panel{title: test + ": overhead of each layer over the one below", y: "%", value: overhead}
		for _, p := range []panel{top, below} {
			drawn, err := p.plot(mine)
			if err != nil {
				return nil, err
			}
			if drawn != nil {
				panels = append(panels, drawn)
			}
		}
	}
	if len(panels) == 0 {
		return nil, ErrNothing
	}
	return panels, nil
}

// caption describes the conditions of a test's results: transports, machine and commit.
func caption(run result.Run, records []result.Record) string {
	text := " over " + strings.Join(result.Transports(records), ", ")
	if w := records[0].Window; w > 1 {
		text += fmt.Sprintf(", windows of %d", w)
	}
	where := fmt.Sprintf("%s, %d cores; gucx %s; bars: 95 %%", run.Machine.CPU, run.Machine.Cores, run.Commit)
	return text + "\n" + sheet.Wrap(where, captionWidth)
}

// captionWidth is the number of characters of a title that fit above a panel.
const captionWidth = 64

// swept returns the tests with at least two sizes.
func swept(records []result.Record) (tests []string) {
	first := map[string]int{}
	for _, r := range records {
		size, seen := first[r.Test]
		if !seen {
			first[r.Test] = r.Size
		} else if size != r.Size && !slices.Contains(tests, r.Test) {
			tests = append(tests, r.Test)
		}
	}
	return tests
}

// panel describes one plot.
type panel struct {
	title, y string
	value    figure
	logY     bool
}

// plot draws a line for each layer of each transport that has points; it returns nil if there are none.
func (p panel) plot(records []result.Record) (*drawing, error) {
	out := newDrawing(p.title, "message size, bytes", p.y)
	out.Add(plotter.NewGrid())
	transports := result.Transports(records)
	lines := 0
	for i, layer := range layersOf(records) {
		for j, transport := range transports {
			points := p.points(records, layer, transport)
			if len(points.XYs) == 0 {
				continue
			}
			line, marks, err := plotter.NewLinePoints(points)
			if err != nil {
				return nil, fmt.Errorf("plot %s of %s: %w", p.title, layer, err)
			}
			bars, err := plotter.NewYErrorBars(points)
			if err != nil {
				return nil, fmt.Errorf("plot %s of %s: %w", p.title, layer, err)
			}
			line.LineStyle, marks.GlyphStyle = styleOf(layer, i, j)
			bars.Color, bars.CapWidth = line.Color, vg.Points(3)
			out.Add(line, bars, marks)
			name := layer
			if len(transports) > 1 {
				name = transport + " " + layer
			}
			out.legend.Add(name, line, marks)
			lines++
		}
	}
	if lines == 0 {
		return nil, nil
	}
	logAxis(&out.X, sizeTicks{})
	if p.logY {
		logAxis(&out.Y, decades{})
	}
	return out, nil
}

// points returns the points of a series, with the distances to the bounds.
type points struct {
	plotter.XYs
	plotter.YErrors
}

func (p panel) points(records []result.Record, layer, transport string) (all points) {
	for _, r := range records {
		y, lo, hi, ok := p.value(r)
		if !ok || r.Layer != layer || r.Transport != transport || r.Size <= 0 {
			continue
		}
		all.XYs = append(all.XYs, plotter.XY{X: float64(r.Size), Y: y})
		all.YErrors = append(all.YErrors, struct{ Low, High float64 }{max(0, y-lo), max(0, hi-y)})
	}
	all.clamp()
	return all
}

// leastSpan is the part of the range of values that a bar may always cover.
const leastSpan = 10

// clamp shortens bars that are longer than the distance between all points: they would hide the curves.
func (p *points) clamp() {
	if len(p.XYs) == 0 {
		return
	}
	_, _, lowest, highest := plotter.XYRange(p.XYs)
	span := max(highest-lowest, leastSpan)
	for i := range p.YErrors {
		p.YErrors[i].Low = min(p.YErrors[i].Low, span)
		p.YErrors[i].High = min(p.YErrors[i].High, span)
	}
}

// layersOf returns the layers of records, from the lowest to the highest.
func layersOf(records []result.Record) []string {
	layers := result.Layers(records)
	place := func(name string) int {
		if i, ok := layerColors[name]; ok {
			return i
		}
		return len(layerColors)
	}
	slices.SortStableFunc(layers, func(a, b string) int { return place(a) - place(b) })
	return layers
}

// sizeTicks has ticks at powers of two and labels every second one.
type sizeTicks struct{}

// Ticks implements plot.Ticker.
func (sizeTicks) Ticks(lo, hi float64) (ticks []plot.Tick) {
	units := []string{"", "Ki", "Mi", "Gi"}
	for exp := 0; exp < 10*len(units); exp++ {
		v := float64(uint64(1) << exp)
		if v < lo || v > hi {
			continue
		}
		t := plot.Tick{Value: v}
		if exp%2 == 0 || lo*16 > hi {
			t.Label = fmt.Sprintf("%d%s", 1<<(exp%10), units[exp/10])
		}
		ticks = append(ticks, t)
	}
	return ticks
}
